// An error code that an operator names: of the catalogue, or one that a record has.
import { closest } from 'fastest-levenshtein';
import { isKnownCode } from '../error-catalogue.js';
import { UsageError } from '../errors.js';
import type { State } from '../state/database.js';
import { listFailureCodes } from '../state/records/count-failures.js';
import { LIMITED_OPERATIONS } from '../state/schema.js';

/** Throws UsageError for a code that is in no record and in no catalogue. What is held has an operation instead. */
export async function requireKnownCode({ db }: Pick<State, 'db'>, code: string | undefined): Promise<void> {
  if (code === undefined || isKnownCode(code) || LIMITED_OPERATIONS.some((one) => one === code)) return;
  const codes = await listFailureCodes(db);
  if (codes.includes(code)) return;
  throw new UsageError(`no record has the code '${code}'`, {
    remedy:
      codes.length === 0
        ? 'No record has any: every record is in sync as it was last read.'
        : `Did you mean ${closest(code, codes)}? There are: ${codes.join(', ')}.`,
  });
}
