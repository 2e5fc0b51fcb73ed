import type { App } from '../app/app.js';
import { selectStreams } from '../config/config-file.js';
import { UsageError } from '../errors/errors.js';
import { printNote } from '../render/print.js';
import { countRecords } from '../state/records/read/count-records.js';
import type { Stream } from '../streams/stream.js';
import { plural } from '../text/format.js';
import { EXIT } from './command.js';
import { startAndWork, type RunOptions } from './work-run.js';

/** Finishes an earlier unfinished run first, because that run was planned from an older state of the mirror. */
export async function sync(
  app: App,
  names: string[],
  options: RunOptions & { limit?: number; strict?: boolean },
): Promise<number> {
  const waits = options.strict ? '--strict' : options.timeout === undefined ? undefined : '--timeout';
  if (waits !== undefined && options.detach)
    throw new UsageError(
      `${waits} waits for the end of the run, and --detach does not; leave out one of them`,
    );
  const { limit } = options;
  app.state().catch(() => undefined); // it connects meanwhile; a fault of the configuration is said first
  const streams = selectStreams(await app.configuration(), names);
  // Opens all connections at the same time. If several fail, the error of the state is reported first.
  const sources = app.mirror().then((mirror) => mirror.requireSources(streams));
  await Promise.allSettled([app.state(), sources, app.queue(), app.timeZone(), app.destination()]);
  await app.state();
  await sources;
  const range = limit === undefined ? undefined : { limit };
  const request = { kind: 'sync', lane: 'sync', range } as const;
  const code = await startAndWork(app, streams, request, options, { resumeCommand: 'slotsync sync' });
  return options.strict ? refuseUnaccepted(app, streams, code) : code;
}

/**
 * Returns 1 while any record is failed or given up, even since an earlier run. Otherwise cron would report only once.
 */
async function refuseUnaccepted(app: App, streams: readonly Stream[], code: number): Promise<number> {
  const named = new Set(streams.map(({ name }) => name));
  const counts = (await countRecords((await app.state()).db)).filter(({ stream }) => named.has(stream));
  const count = (wanted: string) =>
    counts.reduce((sum, { status, count: of }) => sum + (status === wanted ? of : 0), 0);
  const [failed, dead] = [count('failed'), count('dead')];
  if (failed + dead === 0) return code;
  printNote(
    `${plural(failed + dead, 'record')} ${failed + dead === 1 ? 'is' : 'are'} not accepted (${failed} failed, ${dead} given up): slotsync failures`,
  );
  return code === EXIT.usage ? code : EXIT.failed;
}
