import type { App } from '../app/app.js';
import { selectStreams } from '../config/config-file.js';
import { requireSources } from '../mirror/require-sources.js';
import { readLimit, readRunOptions, startAndWork, type RunOptions } from './work-run.js';

/** An earlier unfinished run is finished first: it was planned from an older reading of the mirror. */
export async function sync(
  app: App,
  names: string[],
  options: RunOptions & { limit?: string },
): Promise<number> {
  const runOptions = readRunOptions(options);
  const limit = readLimit(options.limit);
  const streams = selectStreams(await app.configuration(), names);
  await app.state();
  await requireSources(await app.mirror(), { streams });
  const range = limit === undefined ? undefined : { limit };
  const request = { kind: 'sync', lane: 'sync', range } as const;
  return startAndWork(app, streams, request, runOptions, { resumeCommand: 'slotsync sync' });
}
