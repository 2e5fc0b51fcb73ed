// Why records are not in sync, as far as one stream or one choice of records is asked for: for `failures` and its page.
import { listCauses } from './causes.js';
import type { Queries } from '../state/database.js';
import { countDrift, isDrift } from '../state/drift/read-drift.js';
import { countFormerObjects } from '../state/records/read/former-objects.js';
import { countUnsettled } from '../state/records/read/count-records.js';
import type { FailureFilter } from '../state/records/read/failure-filter.js';
import { listRenamedRows } from '../state/records/read/renamed-rows.js';
import { readKnowledge } from '../state/records/read/unsent-records.js';

export type FailuresFacts = Awaited<ReturnType<typeof readFailuresFacts>>;

/** `narrows`: the options that choose among the records of a stream. `configured`: the streams of the configuration. */
export async function readFailuresFacts(
  db: Queries,
  filter: FailureFilter,
  { narrows = '', configured }: { narrows?: string; configured?: readonly string[] | undefined },
) {
  const { stream, status } = filter;
  const total = await countUnsettled(db, filter);
  const drift = (await countDrift(db))
    // An object without a record was never accepted: no write of it failed.
    .filter((counted) => isDrift(counted.kind))
    .filter((counted) => stream === undefined || counted.stream === stream)
    .reduce((sum, { count }) => sum + count, 0);
  return {
    stream,
    status,
    narrows,
    /** Records not in sync that the filter names, and all of the stream. */
    total,
    all: narrows === '' ? total : await countUnsettled(db, { stream }),
    known: await readKnowledge(db, { stream, configured }),
    causes: await listCauses(db, filter, configured),
    formerObjects: await countFormerObjects(db, stream),
    renamed: await listRenamedRows(db, stream),
    /** Objects of records that differ at the service, as a verify saw them. */
    drift,
  };
}
