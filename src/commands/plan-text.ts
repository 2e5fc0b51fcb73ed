// The output of `plan`: samples field by field, a table of the operations, what would be held, and the time it takes.
import { isUnsendable, type Preview } from '../sync/plan/preview.js';
import type { FrozenStream } from '../state/freezes.js';
import type { PlanCounts } from '../state/schema.js';
import type { PlannedOperation } from '../sync/plan/planned-operations.js';
import { formatDuration, formatMinute, formatNumber, plural, shorten, lines } from '../text/format.js';
import { columnsOf } from '../process/terminal.js';
import { table } from '../render/table.js';
import type { FieldChange } from '../streams/destination-object.js';
import { describeRenamed } from '../documents/failures.js';
import { describeChange, formatValues } from '../documents/document.js';
import { widthOf } from '../render/wrap.js';
import { describeWholeLoad } from '../sync/limits/load-age.js';
import { withReasons } from '../sync/limits/hold-reason.js';

/** The most samples of each stream, unless all are asked for. */
const CREATES_SHOWN = 3;
const FIELDS_SHOWN = 5;
const VALUE_SHOWN = 30;
const MORE = ', …';
const COUNTS = ['create', 'update', 'retire', 'moved', 'retry', 'unchanged', 'dead'] as const;

interface PlanCost {
  requests: number;
  /** Requests per second. */
  rate: number;
  latencyMs: number;
  seconds: number;
  endsAt: Date;
  /** Streams of which nothing is sent now: their requests are not among these. */
  frozen: readonly FrozenStream[];
}

interface PlanLayout {
  samples: boolean;
  timeZone: string;
  columns?: number;
}

export function describePlans(
  plans: readonly Preview[],
  cost: PlanCost,
  { samples, timeZone, columns = columnsOf(process.stdout) }: PlanLayout,
): string[] {
  return lines(
    plans.flatMap((plan) =>
      lines(
        samples && describeSamples(plan, columns),
        plan.unread !== undefined && [
          `${plan.stream}: the objects at the service could not be read: ${plan.unread}`,
          '',
        ],
      ),
    ),
    table(
      ['stream', ...COUNTS, 'requests'],
      plans.map(({ stream, counts, requests }) => [
        stream,
        ...COUNTS.map((name) => counts[name] ?? 0),
        requests,
      ]),
      { columns },
    ).split('\n'),
    '',
    plans.flatMap(describeProblems),
    cost.frozen.map(
      ({ stream, endsAt, reason }) =>
        `${stream} is frozen until ${formatMinute(endsAt, timeZone)} (${reason}): nothing of it is sent before.`,
    ),
    describeCost(cost, timeZone),
  );
}

/** Objects that would be created on a line each, what else would be written field by field. */
function describeSamples({ stream, counts, samples }: Preview, columns: number): string[] {
  const isCreate = ({ operation, problem }: PlannedOperation) =>
    operation === 'create' && problem === undefined;
  const shown = samples.filter(isCreate).slice(0, CREATES_SHOWN);
  const total = counts.create ?? 0;
  const which = shown.length < total ? `${formatNumber(shown.length)} of ${formatNumber(total)}` : 'all';
  return lines(
    shown.length > 0 && [
      `create ${stream}, ${which}`,
      ...shown.map((sample) => describeCreate(sample, columns)),
      '',
    ],
    samples.filter((sample) => !isCreate(sample)).flatMap((sample) => describeOperation(stream, sample)),
  );
}

/** A name says most about an object. */
const byName = (a: FieldChange, b: FieldChange) =>
  Number(b.field.endsWith('.name')) - Number(a.field.endsWith('.name'));

/** `'R1' → room_R1  room.name "Sal 1", room.seats 40, …`: as many fields as fit the line. */
function describeCreate({ key, externalId, changes }: PlannedOperation, columns: number): string {
  let line = `  '${key}' → ${externalId ?? '(no external id)'}`;
  const told = changes.filter(({ field }) => field !== 'active').toSorted(byName);
  for (const [at, { field, new: values }] of told.entries()) {
    const value = shorten(formatValues(values), VALUE_SHOWN);
    const longer = `${line}${at === 0 ? '  ' : ', '}${field} ${value}`;
    const isLast = at === told.length - 1;
    if (at === FIELDS_SHOWN || widthOf(longer) > columns - (isLast ? 0 : MORE.length)) return line + MORE;
    line = longer;
  }
  return line;
}

/** Shows an operation, field by field. */
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

function describeProblems(preview: Preview): string[] {
  const { stream, counts, error, holds, load, refused, refusals, renamed } = preview;
  const more = refused - refusals.length;
  return lines(
    error && `${stream} cannot be planned: ${error.message}`,
    describeMet(stream, counts),
    load && Object.keys(holds).length === 0 && `${stream}: ${describeWholeLoad(load)}`,
    Object.values(withReasons(holdsOf(preview), { stream })).map(
      ({ reason }) => `${stream}: held: ${reason}`,
    ),
    refusals.map(({ key, message }) => `${stream} '${key}' would not be sent: ${message}.`),
    more > 0 && `${stream}: ${plural(more, 'more row', 'more rows')} would not be sent.`,
    renamed.map((pair) => describeRenamed({ stream, ...pair })),
    isUnsendable(preview) &&
      `${stream}: none of the rows that were tried can be sent. To try all of them: slotsync check --rows`,
  );
}

/** Without those of a freeze, of which a line of its own is shown. */
const holdsOf = ({ holds }: Preview): Preview['holds'] =>
  Object.fromEntries(Object.entries(holds).filter(([, { reason }]) => reason !== 'frozen'));

/** The objects that records which were never accepted meet at the service, if any. */
function describeMet(stream: string, { new: fresh = 0, equal = 0, overwrite = 0 }: PlanCounts) {
  if (equal + overwrite === 0) return undefined;
  const asked = plural(fresh + equal + overwrite, 'record');
  return `${stream}: ${asked} never accepted: ${fresh} new, ${equal} at the service already and equal, ${overwrite} would overwrite what is there.`;
}

function describeCost(
  { requests, rate, latencyMs, seconds, endsAt, frozen }: PlanCost,
  timeZone: string,
): string {
  if (requests === 0) return frozen.length > 0 ? 'Nothing to send now.' : 'Nothing to send.';
  const pace = `${rate} requests a second and ${Math.round(latencyMs)} ms latency`;
  return `At most ${plural(requests, 'request')}: ${formatDuration(seconds)} at ${pace}, done at ${formatMinute(endsAt, timeZone)} if started now.`;
}
