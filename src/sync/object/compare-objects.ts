// Objects at the service beside what they should be. Verify, match and the first contact of a stream all read and compare
// here. Reads on every side and writes nothing.
import type { Context } from '../../destination/client.js';
import type { FoundObject } from '../../destination/destination.js';
import type { SlotsyncError } from '../../errors/errors.js';
import type { MirrorRow } from '../../mirror/mirror.js';
import type { OwnerRecord } from '../../state/records/read/owners.js';
import { diffObjects, type DestinationObject, type FieldChange } from '../../streams/destination-object.js';
import { differingOf, type KeptField } from '../../streams/field-rules.js';
import type { NeededReference } from '../../streams/map-row.js';
import type { Stream } from '../../streams/stream.js';
import { ownedBy, whoHasObjects } from '../identity/who-has.js';
import { mergeWithService, renderRows, type Rendered } from './render.js';
import type { SyncDeps } from '../run/sync-deps.js';

export type CompareDeps = Pick<SyncDeps, 'mirror' | 'state' | 'streams'>;

/** The record that owns an object, or the row that has its external id. */
export interface Owner {
  stream: Stream;
  key: string;
  /** Undefined: no record has the object; its row has the external id. */
  record: OwnerRecord | undefined;
  /** As the mirror has it now; undefined: it is gone, or cannot be read. */
  row: MirrorRow | undefined;
  /** The object that the row becomes. */
  rendered: Rendered | undefined;
  /** Why the row cannot be read. */
  unreadable: SlotsyncError | undefined;
  /** Keys of further rows that give the same external id, where no record has it. */
  others: readonly string[];
}

/** An object, and its owner; undefined: nobody. */
export interface ObjectBeside {
  object: FoundObject;
  owner: Owner | undefined;
}

/** A text for a reference to a record that is not at the service yet; undefined: no text. */
type Placeholder = (reference: NeededReference) => string | undefined;

/**
 * For each object the record that has its external id, or else the row that has it, with what the row becomes now; for
 * one without an external id the row that is linked to it. A few queries for all of them. Throws what mirror and state
 * throw. `placeholder`: as in `renderRows`.
 */
export async function findOwners(
  deps: CompareDeps,
  objects: readonly FoundObject[],
  placeholder?: Placeholder,
): Promise<ObjectBeside[]> {
  const holderOf = await whoHasObjects(deps, objects, { rows: 'where unowned' });
  const owned = objects.map((object) => {
    const holder = holderOf(object);
    const record = ownedBy(deps, holder);
    const [row, ...others] = holder.rows;
    const name = record ?? row ?? (object.extId === undefined ? holder.link : undefined);
    return { object, record, name, others: others.map(({ localKey }) => localKey) };
  });

  const readOf = new Map<string, Awaited<ReturnType<typeof readRendered>>>();
  for (const stream of deps.streams.values()) {
    const keys = owned.flatMap(({ name }) => (name?.stream === stream.name ? name.localKey : []));
    if (keys.length > 0) readOf.set(stream.name, await readRendered(deps, stream, keys, placeholder));
  }
  return owned.map(({ object, record, name, others }) => {
    const stream = name && deps.streams.get(name.stream);
    const read = name && readOf.get(name.stream)?.(name.localKey);
    return { object, owner: stream && read && { stream, key: name.localKey, record, others, ...read } };
  });
}

/** How types are read. */
interface TypeReading {
  types: Iterable<string>;
  context: Context;
  /** Awaited before each request. */
  pace?: (() => Promise<void>) | undefined;
  /** As in `renderRows`. */
  placeholder?: Placeholder;
  /** Milliseconds since any moment, never going back. */
  clock?: () => number;
}

/**
 * Reads types whole, page by page, with each object beside its owner. `begin` makes the result, to which `add` adds a page;
 * `askedAt` is when the page was asked for, by the clock. When objects come or go meanwhile, `begin` makes another result,
 * and the types are read again from the beginning.
 */
export function readBeside<T>(
  deps: CompareDeps & Pick<SyncDeps, 'destination'>,
  { types, context, pace, placeholder, clock = () => performance.now() }: TypeReading,
  begin: () => T | Promise<T>,
  add: (result: T, page: readonly ObjectBeside[], askedAt: number) => Promise<void>,
): Promise<T> {
  /** When each page was asked for that was not answered yet, in the order of the pages. */
  let asked: number[] = [];
  const read = async (pages: AsyncIterable<readonly FoundObject[]>) => {
    asked = [];
    const result = await begin();
    for await (const objects of pages) {
      context.signal?.throwIfAborted();
      const askedAt = asked.shift() ?? -Infinity;
      await add(result, await findOwners(deps, objects, placeholder), askedAt);
    }
    return result;
  };
  const pacing = async () => {
    asked.push(clock());
    await pace?.();
  };
  return deps.destination.readTypes(types, context, read, { pace: pacing });
}

/** Rows as they are now, and what they become, by key. */
export async function readRendered(
  { mirror, state }: CompareDeps,
  stream: Stream,
  keys: readonly string[],
  placeholder?: Placeholder,
) {
  const { rows, unreadable } = await mirror.readRows(stream, keys);
  const rendered = await renderRows(state, stream, rows, placeholder);
  return (key: string) => ({
    row: rows.get(key),
    rendered: rendered.get(key),
    unreadable: unreadable.get(key),
  });
}

/**
 * The effect of a write of this object. `changes`: of fields that the mapping owns, and of `active`; empty: none. `kept`:
 * fields that differ and stay, by their rules. `accepted`: the record's `accepted_fields`.
 */
export function differencesOf(
  stream: Stream,
  object: DestinationObject,
  standing: FoundObject | undefined,
  accepted?: string | null,
): { changes: FieldChange[]; kept: KeptField[] } {
  const found = standing && { ...standing, extId: object.extId };
  const merged = mergeWithService(stream, object, found, accepted);
  return { changes: diffObjects(found, merged.object), kept: differingOf(merged.kept) };
}
