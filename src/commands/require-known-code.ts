// An error code that an operator names: of the catalogue, or one that a record has.
import { isKnownCode } from '../errors/error-catalogue.js';
import { UsageError } from '../errors/errors.js';
import { nearestName } from '../text/nearest-name.js';
import type { State } from '../state/database.js';
import { listFailureCodes } from '../state/records/read/count-failures.js';
import { GATED_OPERATIONS, GATE_REASONS } from '../state/schema.js';

/** Throws UsageError for a code that is in no record and in no catalogue. What is held has the operation or the reason of a gate. */
export async function requireKnownCode({ db }: Pick<State, 'db'>, code: string | undefined): Promise<void> {
  if (
    code === undefined ||
    isKnownCode(code) ||
    [...GATED_OPERATIONS, ...GATE_REASONS].some((one) => one === code)
  )
    return;
  const codes = await listFailureCodes(db);
  if (codes.includes(code)) return;
  throw new UsageError(`no record has the code '${code}'`, {
    remedy: codes.length === 0 ? 'No record has any.' : describeKnown(code, codes),
  });
}

/** `Did you mean rooms? There are: rooms, courses.` */
export function describeKnown(name: string, known: readonly string[]): string {
  const near = nearestName(name, known);
  const all = `There are: ${known.join(', ')}.`;
  return near === undefined ? all : `Did you mean ${near}? ${all}`;
}
