// Compares objects at the service with the objects that the mapping makes from the mirror's rows. Used by `verify`,
// `match` and the adoption of objects. Writes nothing.
import type { Context } from '../../destination/client.js';
import type { FoundObject } from '../../destination/destination.js';
import type { SlotsyncError } from '../../errors/errors.js';
import type { MirrorRow } from '../../mirror/mirror.js';
import type { OwnerRecord } from '../../state/records/read/owners.js';
import { diffObjects, type DestinationObject, type FieldChange } from '../../streams/destination-object.js';
import { differingOf, type KeptField } from '../../streams/field-rules.js';
import type { NeededReference } from '../../streams/map-row.js';
import type { Stream } from '../../streams/stream.js';
import type { IdentityDeps } from '../identity/row-ids.js';
import { ownedBy, whoHasObjects } from '../identity/who-has.js';
import { mergeWithService, renderRows, type Rendered } from './render.js';
import type { SyncDeps } from '../run/sync-deps.js';

/** Owner of an object: a record, or else the row that has the object's external id. */
export interface Owner {
  stream: Stream;
  key: string;
  /** Record that owns the object. Undefined if only a row has its external id. */
  record: OwnerRecord | undefined;
  /** Current row in the mirror. Undefined if it was deleted or cannot be read. */
  row: MirrorRow | undefined;
  rendered: Rendered | undefined;
  unreadable: SlotsyncError | undefined;
  /** Keys of further rows that have the object's external id. Empty if a record owns the object. */
  others: readonly string[];
}

/** An object at the service, with its owner. `owner` is undefined if neither a record nor a row has the object. */
export interface ObjectBeside {
  object: FoundObject;
  owner: Owner | undefined;
}

/** Returns a placeholder for a reference to a record that is not at the service yet, if there is one. */
type Placeholder = (reference: NeededReference) => string | undefined;

/**
 * Finds the owner of each object: the record that owns it, or else a row with its external id or a link to it. Also
 * renders the object that the owner's row should have. Throws errors of mirror and state.
 */
export async function findOwners(
  deps: IdentityDeps,
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

interface TypeReading {
  types: Iterable<string>;
  context: Context;
  /** Awaited before each request, to limit the request rate. */
  pace?: (() => Promise<void>) | undefined;
  placeholder?: Placeholder;
  /** Returns milliseconds of a monotonic clock. */
  clock?: () => number;
}

/**
 * Reads all objects of some types, page by page, with their owners. `begin` creates a result, and `add` adds a page to
 * it. `askedAt`: clock time when the page was requested. If objects appear or disappear during the reading, it restarts
 * with a new result.
 */
export function readBeside<T>(
  deps: IdentityDeps & Pick<SyncDeps, 'destination'>,
  { types, context, pace, placeholder, clock = () => performance.now() }: TypeReading,
  begin: () => T | Promise<T>,
  add: (result: T, page: readonly ObjectBeside[], askedAt: number) => Promise<void>,
): Promise<T> {
  /** Clock times at which pages were requested, for pages that were not answered yet. */
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

/** Reads the rows with these keys from the mirror, and renders their objects. Returns a look-up function. */
export async function readRendered(
  { mirror, state }: IdentityDeps,
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
 * Compares the rendered object with the object at the service (`standing`). `changes`: fields that a write would
 * change. `kept`: differing fields that a field rule leaves unchanged. `accepted`: the record's `accepted_fields`.
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
