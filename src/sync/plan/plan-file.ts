// A plan as a file: for a spreadsheet one line for each field that would change, for programs one object for each operation.
import { openCsvFile } from '../../files/csv-file.js';
import { UsageError } from '../../errors/errors.js';
import { openOutputFile } from '../../files/output-file.js';
import type { PlannedOperation } from './planned-operations.js';

const COLUMNS = ['stream', 'operation', 'key', 'external_id', 'field', 'there', 'here', 'problem'] as const;

export interface PlanFile {
  write(stream: string, operations: readonly PlannedOperation[]): Promise<void>;
  close(): Promise<void>;
}

/** Opens the file, which is replaced when it is closed. Throws UsageError when its ending says no format, or it cannot be written. */
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
  throw new UsageError(`--out takes a file that ends with .csv or .jsonl, not '${file}'`, {
    remedy:
      '.csv is for spreadsheets: a line for each field. .jsonl is for programs: an object for each operation.',
  });
}

/** An operation that changes no field has one row without one. Several values of a field are separated by `; `. */
function toRows(stream: string, { operation, key, externalId, changes, problem }: PlannedOperation) {
  const row = { stream, operation, key, external_id: externalId, problem };
  if (changes.length === 0) return [row];
  return changes.map((change) => ({
    ...row,
    field: change.field,
    there: change.old.join('; '),
    here: change.new.join('; '),
  }));
}

function toJson(stream: string, { operation, key, externalId, changes, problem }: PlannedOperation) {
  return {
    stream,
    operation,
    key,
    external_id: externalId ?? null,
    changes: changes.map((change) => ({ field: change.field, there: change.old, here: change.new })),
    ...(problem === undefined ? {} : { problem }),
  };
}
