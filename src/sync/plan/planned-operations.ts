// Describes what each planned write would change at the service, field by field, or why it would not be sent. `slotsync
// plan` shows this or writes it to a file.
import type { Context } from '../../destination/client.js';
import type { ServiceObject } from '../../destination/destination.js';
import { UsageError } from '../../errors/errors.js';
import { openCsvFile } from '../../files/csv-file.js';
import { openOutputFile } from '../../files/text-file.js';
import type { RecordKey } from '../../state/records/outcome-types.js';
import { readOwnersByKey, type OwnerRecord } from '../../state/records/read/owners.js';
import { createObject, diffObjects, type FieldChange } from '../../streams/destination-object.js';
import { keptToJson, nameOfRule, type KeptField } from '../../streams/field-rules.js';
import type { Stream } from '../../streams/stream.js';
import { differencesOf } from '../object/compare-objects.js';
import { deactivate, type Rendered, renderWithParents } from '../object/render.js';
import type { RefusedRow } from './planned-batches.js';
import {
  findExistingObjects,
  type PlanDeps,
  type SoughtObject,
  type TypeObjects,
} from './existing-objects.js';
import type { WriteEntry } from './merge-readings.js';

/**
 * `overwrite`: a create whose object exists and would be changed. `move`: the row of another key takes over an object
 * without changing it.
 */
export type Operation = WriteEntry['operation'] | 'overwrite' | 'move';

/** A planned operation, before its changes are known. */
export interface Planned {
  operation: Operation;
  key: string;
  /** Why the row will not be sent, if its external id is the reason. */
  problem?: string | undefined;
}

/** A planned operation with the changes that it makes. `refuse`: a row that is not sent. */
export interface PlannedOperation {
  operation: Operation | 'refuse';
  key: string;
  externalId: string | undefined;
  /** Changed fields. Empty if the object at the service is already equal, or cannot be compared. */
  changes: FieldChange[];
  /** Fields that differ, but whose values at the service are kept by a field rule. */
  kept: KeptField[];
  problem: string | undefined;
}

/**
 * Reads the objects at the service, and returns what the planned operations would change. `read`: objects that the plan
 * has read. If they include all these objects, no request is sent.
 */
export async function describeOperations(
  deps: PlanDeps,
  stream: Stream,
  planned: readonly Planned[],
  context: Context,
  read?: TypeObjects,
): Promise<PlannedOperation[]> {
  if (planned.length === 0) return [];
  const keys = planned.map(({ key }) => key);
  const owners = await readOwnersByKey(deps.state.db, stream.name, keys);
  const known = new Map(owners.map((owner) => [owner.localKey, owner]));
  const { rows, unreadable } = await deps.mirror.readRows(stream, keys);
  const nameOf = ({ stream: parent, localKey }: RecordKey) => `(${parent} ${localKey})`;
  const rendered = await renderWithParents(deps, stream, rows, nameOf);
  const externalIdOf = (key: string) => {
    const result = rendered.get(key);
    return result && 'extId' in result ? result.extId : known.get(key)?.externalId;
  };
  const sought = planned.flatMap(({ operation, key }): SoughtObject | [] => {
    const [result, extId] = [rendered.get(key), externalIdOf(key)];
    if (extId === undefined) return [];
    const isNew = operation === 'create' || operation === 'overwrite';
    const object = isNew && result && 'object' in result ? result.object : undefined;
    return { key, extId, link: result && 'extId' in result ? result.link : undefined, object };
  });
  const type = read?.isKnown(sought.map(({ extId }) => extId)) ? read : undefined;
  const standing = await findExistingObjects(deps, stream, sought, context, type);
  return planned.map(({ operation, key, problem: foreseen }) => {
    const [result, there, externalId] = [rendered.get(key), standing.get(key), externalIdOf(key)];
    const unmapped = foreseen ?? (result && 'problem' in result ? result.problem : undefined);
    if (there && 'ambiguity' in there)
      return { operation, key, externalId, ...NOTHING_CHANGES, problem: there.ambiguity };
    const object = there && 'object' in there ? there.object : undefined;
    const reason = unreadable.get(key) ?? (there && 'unreadable' in there ? there.unreadable : undefined);
    return {
      operation,
      key,
      externalId: object?.extId ?? externalId,
      ...(reason ? NOTHING_CHANGES : changesOf(stream, result, object, known.get(key))),
      problem: unmapped ?? reason?.message,
    };
  });
}

export function toRefused({ key, externalId, message }: RefusedRow): PlannedOperation {
  return { operation: 'refuse', key, externalId, ...NOTHING_CHANGES, problem: message };
}

const NOTHING_CHANGES = { changes: [], kept: [] };

/** Returns the changes that writing a row would make. Without a row, returns the changes of a deactivation. */
function changesOf(
  stream: Stream,
  result: Rendered | undefined,
  standing: ServiceObject | undefined,
  record: OwnerRecord | undefined,
): Pick<PlannedOperation, 'changes' | 'kept'> {
  if (!result)
    return { changes: standing ? diffObjects(standing, deactivate(stream, standing)) : [], kept: [] };
  if ('problem' in result) return NOTHING_CHANGES;
  const object = 'object' in result ? result.object : createObject(result.extId, stream.type, true, []);
  return differencesOf(stream, object, standing, record?.acceptedFields);
}

// The output file of a plan. CSV has a line for each changed field, JSON lines have an object for each operation.

const COLUMNS = ['stream', 'operation', 'key', 'external_id', 'field', 'there', 'here', 'kept_by', 'problem'];

interface PlanFile {
  write(stream: string, operations: readonly PlannedOperation[]): Promise<void>;
  close(): Promise<void>;
}

/** Opens the output file. It replaces an existing file when closed. Throws UsageError for other extensions. */
export async function openPlanFile(file: string): Promise<PlanFile> {
  if (file.endsWith('.csv')) {
    const { write, ...csv } = await openCsvFile(file, COLUMNS);
    return { ...csv, write: (stream, operations) => write(operations.flatMap((one) => toRows(stream, one))) };
  }
  if (file.endsWith('.jsonl')) {
    const { write, ...output } = await openOutputFile(file);
    const toLine = (stream: string, operation: PlannedOperation) =>
      `${JSON.stringify(toJson(stream, operation))}\n`;
    return {
      ...output,
      write: (stream, operations) => write(operations.map((one) => toLine(stream, one)).join('')),
    };
  }
  throw new UsageError(`--out needs a file name that ends with .csv or .jsonl, not '${file}'`, {
    remedy:
      'Use .csv for spreadsheets (one line for each field), or .jsonl for programs (one object for each operation).',
  });
}

/** Returns one CSV row for each changed field, or a single row without a field. Several values are joined by `; `. */
function toRows(stream: string, { operation, key, externalId, changes, kept, problem }: PlannedOperation) {
  const row = { stream, operation, key, external_id: externalId, problem };
  const rows = [
    ...changes.map(({ field, old: there, new: here }) => ({ field, there, here, kept_by: undefined })),
    ...kept.map(({ field, there, here, ...rule }) => ({ field, there, here, kept_by: nameOfRule(rule) })),
  ].map((of) => ({ ...row, ...of, there: of.there.join('; '), here: of.here.join('; ') }));
  return rows.length === 0 ? [row] : rows;
}

function toJson(stream: string, { operation, key, externalId, changes, kept, problem }: PlannedOperation) {
  return {
    stream,
    operation,
    key,
    external_id: externalId ?? null,
    changes: changes.map((change) => ({ field: change.field, there: change.old, here: change.new })),
    ...(kept.length > 0 && { kept: kept.map(keptToJson) }),
    ...(problem === undefined ? {} : { problem }),
  };
}
