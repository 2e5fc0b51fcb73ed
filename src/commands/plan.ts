import type { App } from '../app/app.js';
import { selectStreams } from '../config/config-file.js';
import { requireSources } from '../mirror/require-sources.js';
import { UsageError } from '../errors/errors.js';
import { print, printLines, printNote } from '../render/print.js';
import { findFrozen } from '../sync/operator/find-frozen.js';
import { createRecognizer } from '../sync/run/recognize-databases.js';
import { openPlanFile, type PlannedOperation } from '../sync/plan/planned-operations.js';
import { isUnsendable, previewStream, secondsAtQuota, type Preview } from '../sync/plan/preview.js';
import type { CommonOptions } from './command.js';
import { EXIT } from './exit-code.js';
import { describeOperation, describePlans } from './plan-text.js';
import { withReasons } from '../sync/limits/hold-reason.js';

/** Used while the service's latency has not been measured. */
const ASSUMED_LATENCY_MS = 100;
/** A token, and the types and fields looked up before the first write. */
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
  const all = new Map(configuration.streams.map((stream) => [stream.name, stream]));
  const state = await app.confirmedState();
  const mirror = await app.mirror();
  await requireSources(mirror, { streams });
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
    const previewed = { mirror, state, destination, streams: all };
    plans.push(await previewStream(previewed, stream, { room, each: eachOf }));
  }
  const isComplete = plans.every(({ error }) => error === undefined);
  if (isComplete) await file?.close();
  else if (file) printNote(`${options.out} was not written: a stream cannot be planned.`);

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
