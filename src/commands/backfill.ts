import type { App } from '../app/app.js';
import { selectStreams } from '../config/config-file.js';
import { UsageError } from '../errors/errors.js';
import { requireSources } from '../mirror/require-sources.js';
import { print, printJson, printLine } from '../render/print.js';
import { describeUnknownKeys } from '../documents/runs.js';
import { listUnfinishedRuns } from '../state/runs/read-runs.js';
import { findUnknownKeys } from '../sync/plan/unknown-keys.js';
import { readRange, requireConditions, requireFit, type RangeOptions } from './backfill-range.js';
import { EXIT } from './exit-code.js';
import { readRunOptions, startAndWork, type RunOptions } from './work-run.js';

interface BackfillOptions extends RunOptions, RangeOptions {
  resume?: boolean;
}

const RESUME = 'slotsync backfill --resume';

export async function backfill(app: App, names: string[], options: BackfillOptions): Promise<number> {
  if (options.resume) return resumeBackfill(app, names, options);
  const runOptions = readRunOptions(options);
  const range = await readRange(options);
  const streams = selectStreams(await app.configuration(), names);
  requireFit(streams, range, options);
  const state = await app.state();
  const mirror = await app.mirror();
  await requireSources(mirror, { streams });
  await requireConditions(mirror, streams, range);

  const { keys } = range;
  const [stream] = streams;
  const unknownKeys = keys && stream ? await findUnknownKeys({ mirror, state }, stream, keys) : [];
  if (keys && unknownKeys.length > 0 && !options.json)
    printLine(describeUnknownKeys(unknownKeys, keys.length));
  const extraJson = keys ? { unknownKeys } : {};
  if (keys?.length === unknownKeys.length) {
    if (options.json) printJson({ ...extraJson, run: null });
    return EXIT.failed;
  }
  const asked = Object.keys(range).length === 0 ? undefined : range;
  const request = { kind: 'backfill', lane: 'backfill', range: asked } as const;
  const work = { resumeCommand: RESUME, extraJson, canContinue: true };
  const code = await startAndWork(app, streams, request, runOptions, work);
  return code === EXIT.done && unknownKeys.length > 0 ? EXIT.failed : code;
}

async function resumeBackfill(app: App, names: string[], options: BackfillOptions): Promise<number> {
  const runOptions = readRunOptions(options);
  const { from, to, keys, keysFile, where, force, limit, detach } = options;
  if (
    names.length > 0 ||
    [from, to, keys, keysFile, where, force, limit, detach].some((given) => given !== undefined)
  ) {
    throw new UsageError('--resume continues what was requested before: name neither streams nor a part');
  }
  const { db } = await app.state();
  const run = (await listUnfinishedRuns(db)).findLast(({ kind }) => kind === 'backfill');
  if (!run) {
    print(options, { run: null }, ['No backfill is unfinished; there is nothing to resume.']);
    return EXIT.done;
  }
  const streams = selectStreams(await app.configuration(), run.streams);
  const request = { kind: 'backfill', lane: 'backfill', range: run.range ?? undefined } as const;
  return startAndWork(app, streams, request, runOptions, { resumeCommand: RESUME, canContinue: true });
}
