import type { App } from '../app.js';
import { countDrift } from '../state/drift/read-drift.js';
import { describeDriftLeft } from '../report/verify.js';
import { describeFailure, describeFormerObjects, describeUnsettled, nextStep } from '../report/failures.js';
import { print } from '../report/print.js';
import { countUnsettled } from '../state/records/count-records.js';
import { countFormerObjects } from '../state/records/former-objects.js';
import { listFailures } from '../state/records/list-failures.js';
import type { CommonOptions } from './command.js';
import { requireKnownStream } from './require-known-stream.js';
import { readWholeNumber } from './work-run.js';

export async function failures(
  app: App,
  stream: string | undefined,
  options: CommonOptions & { limit: string },
): Promise<void> {
  const limit = readWholeNumber(options.limit, '--limit takes');
  const state = await app.state();
  await requireKnownStream(app, state, stream);
  const { db } = state;
  const listed = await listFailures(db, { stream, limit });
  const total = await countUnsettled(db, stream);
  const shown = listed.length < total ? ` (the first ${listed.length} shown)` : '';
  const formerObjects = await countFormerObjects(db, stream);
  const drift = (await countDrift(db))
    // An object without a record was never accepted: nothing of it failed.
    .filter((one) => one.kind !== 'extra' && one.stream === (stream ?? one.stream))
    .reduce((sum, { count }) => sum + count, 0);
  const withNext = listed.map((failure) => ({ ...failure, next: nextStep(failure) }));
  print(options, { total, failures: withNext, formerObjects, drift }, [
    ...listed.map((failure) => `${describeFailure(failure)}\n`),
    `${describeUnsettled(total)}${shown}.`,
    ...describeFormerObjects(formerObjects, stream),
    ...describeDriftLeft(drift),
  ]);
}
