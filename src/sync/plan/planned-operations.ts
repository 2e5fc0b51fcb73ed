// The operations of a plan, field by field: what each write would change at the service, or why there would be none.
import type { Context } from '../../destination/client.js';
import type { ServiceObject, Unreadable } from '../../destination/destination.js';
import { readOwnersByKey } from '../../state/records/read/owners.js';
import { createObject, diffObjects, type FieldChange } from '../../streams/destination-object.js';
import type { Stream } from '../../streams/stream.js';
import { differencesOf } from '../object/compare-objects.js';
import type { Rendered } from '../object/render.js';
import { findMeant } from '../identity/match-candidates.js';
import { renderWithParents } from '../object/render-with-parents.js';
import type { WriteEntry } from './merge-readings.js';
import type { ExistingObjectDeps } from './existing-objects.js';
import type { RefusedRow } from './refused-rows.js';

/** `overwrite`: a create, or the retry of one, whose object is at the service already and would be changed. */
export type Operation = WriteEntry['operation'] | 'overwrite';

/** An operation of a plan. */
export interface Planned {
  operation: Operation;
  key: string;
}

/** The same, with what it would change; `refuse`: a row that would not be sent. */
export interface PlannedOperation {
  operation: Operation | 'refuse';
  key: string;
  externalId: string | undefined;
  /** Empty: the service holds exactly this, or there is a problem. */
  changes: FieldChange[];
  problem: string | undefined;
}

/** Compares what is planned with what stands at the service. One request for a thousand objects. */
export async function describeOperations(
  deps: ExistingObjectDeps,
  stream: Stream,
  planned: readonly Planned[],
  context: Context,
): Promise<PlannedOperation[]> {
  if (planned.length === 0) return [];
  const keys = planned.map(({ key }) => key);
  const owners = await readOwnersByKey(deps.state.db, stream.name, keys);
  const known = new Map(owners.map(({ localKey, externalId }) => [localKey, externalId]));
  const { rows, unreadable: unreadableRows } = await deps.mirror.readRows(stream, keys);
  const rendered = await renderWithParents(
    deps,
    stream,
    rows,
    (parent) => `(${parent.stream} ${parent.localKey})`,
  );
  const externalIdOf = (key: string) => {
    const result = rendered.get(key);
    return result && 'extId' in result ? result.extId : known.get(key);
  };
  const extIds = keys.flatMap((key) => externalIdOf(key) ?? []);
  const unreadable: Unreadable = new Map();
  const found = await deps.destination.findObjects(extIds, stream.type, context, unreadable);
  const isKnown = (extId: string) => found.has(extId) || unreadable.has(extId);
  // The run links these to objects before it would create them.
  const absent = planned.flatMap(({ operation, key }) => {
    const result = rendered.get(key);
    const isNew = operation === 'create' || operation === 'overwrite';
    const isSought = isNew && result && 'object' in result && !result.link && !isKnown(result.extId);
    return isSought ? { key, object: result.object } : [];
  });
  const meant = await findMeant(deps, stream, stream.match ? absent : [], context);
  return planned.map(({ operation, key }) => {
    const [result, match] = [rendered.get(key), meant.get(key)];
    const reason = unreadableRows.get(key) ?? unreadable.get(externalIdOf(key) ?? '');
    const unmapped = result && 'problem' in result ? result.problem : undefined;
    if (match && 'ambiguity' in match)
      return { operation, key, externalId: externalIdOf(key), changes: [], problem: match.ambiguity };
    const externalId = match?.object.extId ?? externalIdOf(key);
    const standing = match ? { ...match.object, extId: externalId ?? '' } : found.get(externalId ?? '');
    const changes = reason ? [] : changesOf(stream, result, standing);
    return { operation, key, externalId, changes, problem: unmapped ?? reason?.message };
  });
}

export function toRefused({ key, externalId, message }: RefusedRow): PlannedOperation {
  return { operation: 'refuse', key, externalId, changes: [], problem: message };
}

/** The changes by the write of a rendered row or, without a row, by the retirement. */
function changesOf(stream: Stream, result: Rendered | undefined, standing: ServiceObject | undefined) {
  if (!result) return standing ? diffObjects(standing, { ...standing, active: false }) : [];
  if ('problem' in result) return [];
  const object = 'object' in result ? result.object : createObject(result.extId, stream.type, true, []);
  return differencesOf(stream, object, standing);
}
