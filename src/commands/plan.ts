import type { App } from '../app.js';
import { selectStreams } from '../config-file.js';
import { requireSources } from '../mirror/require-sources.js';
import { describePlans } from '../report/plan.js';
import { print } from '../report/print.js';
import { previewStream, secondsAtQuota, type Preview } from '../sync/plan/preview.js';
import type { CommonOptions } from './command.js';
import { EXIT } from './exit-code.js';
import { readLimit } from './work-run.js';

/** Used while the service's latency has not been measured. */
const ASSUMED_LATENCY_MS = 100;
/** A token, and the types and fields looked up before the first write. */
const REQUESTS_PER_RUN = 3;

export async function plan(
  app: App,
  names: string[],
  options: CommonOptions & { limit?: string },
): Promise<number> {
  const room = { records: readLimit(options.limit) ?? Infinity };
  const configuration = await app.configuration();
  const streams = selectStreams(configuration, names);
  const all = new Map(configuration.streams.map((stream) => [stream.name, stream]));
  const state = await app.confirmedState();
  const mirror = await app.mirror();
  await requireSources(mirror, { streams });
  const destination = await app.destination();
  const plans: Preview[] = [];
  for (const stream of streams)
    plans.push(await previewStream({ mirror, state, destination, streams: all }, stream, { room }));

  const batches = plans.reduce((sum, { requests }) => sum + requests, 0);
  const requests = batches === 0 ? 0 : batches + REQUESTS_PER_RUN;
  const rate = app.settings.requestsPerSecond;
  const latencyMs = destination.meanLatencyMs() ?? ASSUMED_LATENCY_MS;
  const seconds = secondsAtQuota(requests, rate, latencyMs);
  const endsAt = new Date(Date.now() + seconds * 1000);
  const cost = { requests, rate, latencyMs, seconds, endsAt };
  print(options, { streams: plans, requests, seconds, endsAt }, describePlans(plans, cost));
  if (plans.some(({ error }) => error)) return EXIT.failed;
  return plans.some(({ holds }) => Object.keys(holds).length > 0) ? EXIT.held : EXIT.done;
}
