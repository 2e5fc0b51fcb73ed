// What `plan` prints: samples field by field, a table of the operations, what would be held, and the time it takes.
import type { Preview } from '../sync/plan/preview.js';
import type { PlanCounts } from '../state/schema.js';
import type { PlannedOperation } from '../sync/plan/planned-operations.js';
import { explainReading } from '../sync/explain-reading.js';
import { formatDuration, plural, table } from './format.js';
import { lines } from './print.js';
import { columnsOfPlan } from './run.js';
import { describeChange } from './values.js';

const COUNTS = ['create', 'update', 'retire', 'moved', 'retry', 'unchanged', 'dead'] as const;

interface PlanCost {
  requests: number;
  /** Requests per second. */
  rate: number;
  latencyMs: number;
  seconds: number;
  endsAt: Date;
}

export function describePlans(
  plans: readonly Preview[],
  cost: PlanCost,
  shown: { samples: boolean },
): string[] {
  const columns = columnsOfPlan(
    COUNTS,
    plans.map(({ counts }) => counts),
  );
  return lines(
    plans.flatMap(({ stream, samples, unread }) =>
      lines(
        shown.samples && samples.flatMap((sample) => describeOperation(stream, sample)),
        unread !== undefined && `${stream}: the objects at the service could not be read: ${unread}\n`,
      ),
    ),
    table(
      ['stream', ...columns, 'requests'],
      plans.map(({ stream, counts, requests }) => [
        stream,
        ...columns.map((name) => counts[name] ?? 0),
        requests,
      ]),
    ),
    '',
    plans.flatMap(describeProblems),
    describeCost(cost),
  );
}

/** One operation, field by field. */
export function describeOperation(
  stream: string,
  { operation, key, externalId, changes, problem }: PlannedOperation,
): string[] {
  return lines(
    `${operation} ${stream} '${key}'${externalId === undefined ? '' : ` → ${externalId}`}`,
    problem === undefined
      ? changes.map((change) => `  ${describeChange(change)}`)
      : `  not possible: ${problem}`,
    problem === undefined && changes.length === 0 && '  the service already holds exactly this',
    '',
  );
}

function describeProblems({ stream, counts, error, holds, refused, refusals, costly }: Preview): string[] {
  const more = refused - refusals.length;
  return lines(
    error && `${stream} cannot be planned: ${error.message}`,
    describeMet(stream, counts),
    Object.values(holds).map(({ reason }) => `${stream}: held: ${reason}`),
    refusals.map(({ key, message }) => `${stream} '${key}' would not be sent: ${message}.`),
    more > 0 && `${stream}: ${plural(more, 'more row', 'more rows')} would not be sent.`,
    costly && [`${stream}: ${explainReading(costly)}.`, ...costly.remedies.map((remedy) => `  → ${remedy}`)],
  );
}

/** What records that were never accepted meet at the service, when they meet something. */
function describeMet(stream: string, { new: fresh = 0, equal = 0, overwrite = 0 }: PlanCounts) {
  if (equal + overwrite === 0) return undefined;
  const asked = plural(fresh + equal + overwrite, 'record');
  return `${stream}: ${asked} never accepted: ${fresh} new, ${equal} at the service already and equal, ${overwrite} would overwrite what is there.`;
}

function describeCost({ requests, rate, latencyMs, seconds, endsAt }: PlanCost): string {
  if (requests === 0) return 'Nothing to send.';
  const pace = `${rate} requests a second and ${Math.round(latencyMs)} ms latency`;
  return `At most ${plural(requests, 'request')}: ${formatDuration(seconds)} at ${pace}, done at ${endsAt.toTimeString().slice(0, 5)} if started now.`;
}
