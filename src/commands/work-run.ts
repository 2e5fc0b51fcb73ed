// What `sync` and `backfill` share: start a run or go on with one, work the queue until it has ended, and tell what
// became of it.
import { isDeepStrictEqual } from 'node:util';
import type { App } from '../app.js';
import type { Limiter } from '../destination/quota/limiter.js';
import { UsageError } from '../errors.js';
import type { Run } from '../state/runs/read-runs.js';
import { startRun, type RunRequest } from '../state/runs/start-run.js';
import type { Stream } from '../streams/stream.js';
import { EXIT } from './command.js';
import { printJson, printLine } from '../report/format.js';
import { exitCodeOfRun, printRun, runToJson, waitForRun } from '../report/run-report.js';
import { listenForSignals } from './signals.js';

/** A run to wait for. `isOurs`: the command is done when it has ended; otherwise it only stands in the way. */
export interface Begun {
  run: Run;
  started: boolean;
  isOurs: boolean;
}

export interface Work {
  begin: () => Promise<Begun>;
  concurrency: number;
  json?: boolean | undefined;
  /** The command that goes on after an interruption. */
  resumeCommand: string;
  /** What the JSON document holds beside the run. */
  extraJson?: object;
}

/** Works the queue until the run that `begin` starts or finds has ended. Returns the exit code. */
export async function workRun(
  app: App,
  { begin, concurrency, json, resumeCommand, extraJson }: Work,
): Promise<number> {
  const state = await app.state();
  const producer = await app.producer();
  const workers = await app.workers({ concurrency });
  const readUse = createQuotaUseReader(await app.limiter());
  const stop = listenForSignals(workers);
  try {
    await workers.start();
    let run: Run | undefined;
    for (let isOurs = false; !isOurs && !stop.requested();) {
      const begun = await begin();
      ({ run, isOurs } = begun);
      if (run.pausedAt) {
        if (json) printJson({ ...extraJson, run: runToJson(run), started: false });
        else printLine(`Run ${run.id} over these streams is paused. To go on: slotsync resume ${run.id}`);
        return EXIT.done;
      }
      if (begun.started) await producer.enqueueRun(run.id, run.lane);
      else if (!json) printLine(describeFound(begun));
      run = await waitForRun(state, run.id, stop.requested, readUse);
    }
    if (!run?.finishedAt) {
      process.stderr.write(`Stopped. What was accepted is recorded; ${resumeCommand} goes on from there.\n`);
      return EXIT.failed;
    }
    if (json) printJson({ ...extraJson, run: runToJson(run) });
    else await printRun(state, run);
    return exitCodeOfRun(run);
  } finally {
    await workers.stop();
    stop.ended();
  }
}

/** Only queues the run; workers do it. Returns the exit code. */
export async function queueRun(
  app: App,
  request: RunRequest,
  { json, extraJson }: Pick<Work, 'json' | 'extraJson'>,
): Promise<number> {
  const state = await app.state();
  const producer = await app.producer();
  const { run, started } = await startRun(state.db, request);
  await producer.enqueueRun(run.id, run.lane);
  if (json) printJson({ ...extraJson, run: runToJson(run), started });
  else if (started) printLine(`Run ${run.id} is queued. Watch it with: slotsync status`);
  else printLine(`Run ${run.id} over the same streams is not finished yet; nothing was queued.`);
  return EXIT.done;
}

/** Whether a run does what is asked for. */
export function isRunOf(run: Run, { kind, streams, range }: RunRequest): boolean {
  const asked: unknown = JSON.parse(JSON.stringify(range ?? null));
  return (
    run.kind === kind &&
    isDeepStrictEqual(run.streams.toSorted(), streams.toSorted()) &&
    isDeepStrictEqual(run.range, asked)
  );
}

function describeFound({ run, isOurs }: Begun): string {
  return isOurs
    ? `Run ${run.id} is unfinished; going on with it.`
    : `Run ${run.id} over the same streams is unfinished; finishing it first.`;
}

const USE_EVERY_MS = 1000;

/** Tells the share of the quota that was used lately, by everybody. */
function createQuotaUseReader(limiter: Limiter): () => Promise<number | undefined> {
  let before: { at: number; granted: number } | undefined;
  let use: number | undefined;
  return async () => {
    const at = performance.now();
    if (before && at - before.at < USE_EVERY_MS) return use;
    const usage = await limiter.usage().catch(() => undefined); // not known; what sends will say why
    const spent = before && usage ? usage.granted - before.granted : undefined;
    use =
      before && usage && spent !== undefined ? ((spent / (at - before.at)) * 1000) / usage.rate : undefined;
    before = usage && { at, granted: usage.granted };
    return use;
  };
}

export function readConcurrency(text: string | undefined): number {
  const value = Number(text ?? 12);
  if (Number.isInteger(value) && value >= 1 && value <= 200) return value;
  throw new UsageError(`--concurrency takes a whole number from 1 to 200, not '${text}'`);
}

/** The most records to write; undefined: all. */
export function readLimit(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (Number.isSafeInteger(value) && value >= 1) return value;
  throw new UsageError(`--limit takes a whole number of records from 1 on, not '${text}'`);
}

/** Every fault of every source at once, before a run exists. */
export async function requireSources(app: App, streams: readonly Stream[]): Promise<void> {
  const mirror = await app.mirror();
  const faults: string[] = [];
  for (const stream of streams) {
    faults.push(...(await mirror.checkStream(stream)).map((fault) => `streams.${stream.name}: ${fault}`));
  }
  if (faults.length > 0) {
    throw new UsageError('the mirror does not have what the configuration names', {
      faults,
      remedy: 'Correct the configuration; `slotsync check` shows everything at once.',
    });
  }
}
