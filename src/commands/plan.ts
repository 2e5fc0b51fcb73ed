// `plan`: prints sample changes by field, a table of operations, holds, and the time that a sync would take.
import type { App } from '../app/app.js';
import { selectStreams } from '../config/config-file.js';
import { UsageError } from '../errors/errors.js';
import { print, printLines, printNote } from '../render/print.js';
import { findFrozen } from '../sync/operator/find-frozen.js';
import { createRecognizer } from '../sync/run/recognize-databases.js';
import { openPlanFile, type PlannedOperation } from '../sync/plan/planned-operations.js';
import { isUnsendable, previewStream, secondsAtQuota, type Preview } from '../sync/plan/preview.js';
import { type CommonOptions, EXIT } from './command.js';
import { withReasons } from '../sync/limits/hold-reason.js';
import type { FrozenStream } from '../state/freezes.js';
import type { PlanCounts } from '../state/schema.js';
import { formatDuration, formatMinute, formatNumber, plural, shorten, lines } from '../text/format.js';
import { columnsOf } from '../process/terminal.js';
import { table } from '../render/table.js';
import type { FieldChange } from '../streams/destination-object.js';
import { describeExceptions } from '../documents/exceptions.js';
import { describeRenamed } from '../documents/failures.js';
import { describeChange, describeKept, formatValues } from '../documents/document.js';
import { describeWholeLoad } from '../sync/limits/load-age.js';

/** Latency in milliseconds that is assumed until the service's latency has been measured. */
const ASSUMED_LATENCY_MS = 100;
/** Number of requests that a run sends before its first write: they get a token, and the types and fields. */
const REQUESTS_PER_RUN = 3;

export async function plan(
  app: App,
  names: string[],
  options: CommonOptions & { limit?: number; out?: string; full?: boolean },
): Promise<number> {
  if (options.full && options.json)
    throw new UsageError('--full prints text, not JSON', {
      remedy: 'Write every operation as JSON with --out plan.jsonl.',
    });
  const room = { records: options.limit ?? Infinity };
  const configuration = await app.configuration();
  const streams = selectStreams(configuration, names);
  const state = await app.confirmedState();
  const mirror = await app.mirror();
  await mirror.requireSources(streams);
  await createRecognizer({ state, mirror, log: app.log }).both();
  const destination = await app.destination();
  const file = options.out === undefined ? undefined : await openPlanFile(options.out);
  async function each(stream: string, operations: readonly PlannedOperation[]): Promise<void> {
    await file?.write(stream, operations);
    if (options.full) for (const one of operations) printLines(describeOperation(stream, one));
  }
  const wantsEach = file !== undefined || options.full === true;
  const plans: Preview[] = [];
  for (const stream of streams) {
    const eachOf = wantsEach ? (some: readonly PlannedOperation[]) => each(stream.name, some) : undefined;
    const previewed = { mirror, state, destination, streams: await app.streams() };
    plans.push(await previewStream(previewed, stream, { room, each: eachOf }));
  }
  const isComplete = plans.every(({ error }) => error === undefined);
  if (isComplete) await file?.close();
  else if (file) printNote(`${options.out} was not written, because a stream cannot be planned.`);

  const planned = plans.map(({ stream }) => stream);
  const frozen = await findFrozen(state.db, planned, configuration.freezes);
  const freezeOf = ({ stream }: Preview) => frozen.find((freeze) => freeze.stream === stream) ?? null;
  const sendable = plans.filter((plan) => freezeOf(plan) === null);
  const batches = sendable.reduce((sum, { requests }) => sum + requests, 0);
  const requests = batches === 0 ? 0 : batches + REQUESTS_PER_RUN;
  const rate = app.settings.requestsPerSecond;
  const latencyMs = destination.meanLatencyMs() ?? ASSUMED_LATENCY_MS;
  const seconds = secondsAtQuota(requests, rate, latencyMs);
  const endsAt = new Date(Date.now() + seconds * 1000);
  const cost = { requests, rate, latencyMs, seconds, endsAt };
  const streamsJson = plans.map((plan) => ({
    ...plan,
    frozen: freezeOf(plan),
    holds: withReasons(plan.holds, plan),
  }));
  const layout = { samples: !options.full, timeZone: await app.timeZone() };
  print(options, { streams: streamsJson, requests, seconds, endsAt }, [
    ...describePlans(plans, { ...cost, frozen }, layout),
    ...(file && isComplete ? [`Written to ${options.out}.`] : []),
  ]);
  if (plans.some((plan) => plan.error || isUnsendable(plan))) return EXIT.failed;
  const isHeld = ({ holds }: Preview) => Object.values(holds).some(({ reason }) => reason !== 'frozen');
  return plans.some(isHeld) ? EXIT.held : EXIT.done;
}

/** Maximum number of new objects that are printed for each stream, unless `--full` is given. */
const CREATES_SHOWN = 3;
const FIELDS_SHOWN = 5;
const VALUE_SHOWN = 30;
const COUNTS = ['create', 'update', 'retire', 'moved', 'retry', 'unchanged', 'dead'] as const;

interface PlanCost {
  requests: number;
  rate: number;
  latencyMs: number;
  seconds: number;
  endsAt: Date;
  /** Frozen streams, which send nothing now. `requests` does not count their requests. */
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
          `${plan.stream}: objects at the service could not be read: ${plan.unread}`,
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
        `${stream} is frozen until ${formatMinute(endsAt, timeZone)} (${reason}): nothing of this stream is sent until then.`,
    ),
    describeCost(cost, timeZone),
  );
}

/** Sample changes of a plan: a line for each new object, and a line for each field of any other write. */
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

/** Sort order that puts the field `….name` first, because a name says most about an object. */
const byName = (a: FieldChange, b: FieldChange) =>
  Number(b.field.endsWith('.name')) - Number(a.field.endsWith('.name'));

/** Returns a line such as `'R1' → room_R1  room.name "Sal 1", …`, with the first fields, cut to the width. */
function describeCreate({ key, externalId, changes }: PlannedOperation, columns: number): string {
  const told = changes.filter(({ field }) => field !== 'active').toSorted(byName);
  const fields = told
    .slice(0, FIELDS_SHOWN)
    .map(({ field, new: values }) => `${field} ${shorten(formatValues(values), VALUE_SHOWN)}`);
  const more = told.length > FIELDS_SHOWN ? ', …' : '';
  const shown = changes.length === 0 ? 'already equal at the service' : fields.join(', ') + more;
  return shorten(`  '${key}' → ${externalId ?? '(no external id)'}  ${shown}`, columns);
}

function describeOperation(
  stream: string,
  { operation, key, externalId, changes, kept, problem }: PlannedOperation,
): string[] {
  return lines(
    `${operation} ${stream} '${key}'${externalId === undefined ? '' : ` → ${externalId}`}`,
    problem === undefined
      ? changes.map((change) => `  ${describeChange(change)}`)
      : `  not possible: ${problem}`,
    problem === undefined && kept.map((one) => `  ${describeKept(one)}`),
    problem === undefined && changes.length === 0 && '  the service already has exactly this object',
    '',
  );
}

function describeProblems(preview: Preview): string[] {
  const { stream, counts, error, holds, load, refused, refusals, renamed, kept, broken, unowned } = preview;
  const more = refused - refusals.length;
  return lines(
    error && `${stream} cannot be planned: ${error.message}`,
    describeMet(stream, counts),
    describeLeftOut(stream, counts),
    counts.excepted !== undefined && `${stream}: ${describeExceptions(counts.excepted)}`,
    load && Object.keys(holds).length === 0 && `${stream}: ${describeWholeLoad(load)}`,
    Object.values(withReasons(holdsOf(preview), { stream })).map(
      ({ reason }) => `${stream}: held: ${reason}`,
    ),
    refusals.map(({ key, message }) => `${stream} '${key}' would not be sent: ${message}.`),
    more > 0 && `${stream}: ${plural(more, 'more row', 'more rows')} would not be sent.`,
    broken.map(
      ({ localKey, errorMessage }) =>
        `${stream} '${localKey}' is not sent: ${errorMessage}. To see the next step: slotsync failures ${stream}`,
    ),
    describeHandovers(preview),
    kept > 0 &&
      `${stream}: ${plural(kept, 'row was', 'rows were')} deleted. ${kept === 1 ? 'Its object stays as it is' : 'Their objects stay as they are'}, because of retire: 'keep'.`,
    unowned > 0 &&
      `${stream}: the service has ${plural(unowned, 'other object')} of this type, without a record. To find rows that mean the same, before the first sync: slotsync match ${stream}`,
    renamed.map((pair) => describeRenamed({ stream, ...pair })),
    isUnsendable(preview) &&
      `${stream}: none of the checked rows can be sent. To check all rows: slotsync check --rows`,
  );
}

/** Names objects whose row is another one now. A plan counts these as updates, but the bookings follow the object. */
function describeHandovers({ stream, handedOver, handovers }: Preview): string | false {
  const named = handovers.map(({ externalId, from, to }) => {
    const former = from.stream === stream ? '' : `${from.stream} `;
    return `${externalId} from ${former}'${from.localKey}' to '${to}'`;
  });
  const more = handedOver > named.length ? ', …' : '';
  const change = handedOver === 1 ? 'object moves' : 'objects move';
  return (
    handedOver > 0 &&
    `${stream}: ${formatNumber(handedOver)} ${change} to another row, with all bookings: ${named.join(', ')}${more}.`
  );
}

/** Returns the holds of a preview except those of a freeze, which is printed separately. */
const holdsOf = ({ holds }: Preview): Preview['holds'] =>
  Object.fromEntries(Object.entries(holds).filter(([, { reason }]) => reason !== 'frozen'));

/** Sentence about never accepted records whose objects are already at the service. Undefined for zero objects. */
function describeMet(stream: string, { new: fresh = 0, equal = 0, overwrite = 0 }: PlanCounts) {
  if (equal + overwrite === 0) return undefined;
  const asked = plural(fresh + equal + overwrite, 'record');
  return `${stream}: ${asked} never accepted: ${fresh} new, ${equal} already equal at the service, ${overwrite} would overwrite an existing object.`;
}

const describeLeftOut = (stream: string, { left_out = 0 }: PlanCounts) =>
  left_out > 0 &&
  `${stream}: ${plural(left_out, 'write')} left out, because \`operations\` of the stream does not include them.`;

function describeCost(
  { requests, rate, latencyMs, seconds, endsAt, frozen }: PlanCost,
  timeZone: string,
): string {
  if (requests === 0) return frozen.length > 0 ? 'Nothing to send now.' : 'Nothing to send.';
  const pace = `${rate} requests a second and ${Math.round(latencyMs)} ms latency`;
  return `At most ${plural(requests, 'request')}: ${formatDuration(seconds)} at ${pace}, done at ${formatMinute(endsAt, timeZone)} if started now.`;
}
