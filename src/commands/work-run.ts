// Shared by sync, backfill, verify and approve: starts or continues a run, works the queue, and reports the result.
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import type { App } from '../app/app.js';
import { createQuotaUseReader } from '../destination/quota/limiter.js';
import { SlotsyncError } from '../errors/errors.js';
import { plain } from '../render/text.js';
import { formatTime } from '../text/format.js';
import { print, printJson, printLine, printNote } from '../render/print.js';
import { printDocument } from '../render/print-document.js';
import { describeFormer, findFormerProcesses } from '../documents/concerns/processes.js';
import { createProgress } from '../render/progress.js';
import { runDocument, runToJson } from '../documents/runs.js';
import { readRunFacts } from '../situation/run-facts.js';
import { readClock, type State } from '../state/database.js';
import { listProcesses } from '../state/processes.js';
import { type RunRequest, startRun, endLeftRuns } from '../state/runs/start-run.js';
import { isWhole, readProgress, readRun, type Run } from '../state/runs/read-runs.js';
import { markDue } from '../state/streams.js';
import type { Waiting } from '../state/locks.js';
import type { Stream } from '../streams/stream.js';
import { EXIT, exitCodeOfRun } from './command.js';
import { listenForSignals } from './signals.js';

export interface RunOptions {
  json?: boolean;
  detach?: boolean;
  /** Maximum number of batches in flight. If undefined, as many as the quota needs. */
  concurrency?: number | undefined;
  /** Minutes after which the command ends, even if the run has not ended. */
  timeout?: number | undefined;
}

interface Work {
  /**
   * Starts a run, or finds an unfinished run to wait for. If `isOurs`, the command is done when this run has ended.
   */
  begin: (waiting: Waiting) => Promise<{ run: Run; started: boolean; isOurs: boolean }>;
  /** Command that continues the work after an interruption. */
  resumeCommand: string;
  extraJson?: object;
}

const LOOK_EVERY_MS = 200;
/** Polling interval in milliseconds while this process works the run without jobs, and so notices its end. */
const LOOK_AT_OWN_EVERY_MS = 1000;
/** Time in milliseconds that the service must fail before the command reports the failure. */
const LASTING_MS = 2000;
/** Interval in milliseconds at which the command checks that some process may still work on the run. */
const LOOK_FOR_WORKERS_EVERY_MS = 5000;

/** Starts the run and works it, or only queues it with `--detach`. Returns the exit code. */
export async function startAndWork(
  app: App,
  streams: readonly Stream[],
  wanted: Pick<RunRequest, 'kind' | 'lane' | 'range'>,
  options: RunOptions,
  {
    canContinue = false,
    onStarted,
    ...work
  }: Omit<Work, 'begin'> & { canContinue?: boolean; onStarted?: (runId: number) => Promise<void> },
): Promise<number> {
  const { fingerprints } = await app.configuration();
  const names = streams.map(({ name }) => name);
  const request = { ...wanted, startedBy: 'command', streams: names, fingerprints } as const;
  const { db } = await app.state();
  async function start(waiting: Waiting) {
    const begun = await startRun(db, request, waiting);
    if (begun.started) await onStarted?.(begun.run.id);
    return begun;
  }
  return beginAndWork(app, start, options, {
    ...work,
    continues: (run) => canContinue && isRunOf(run, request),
    dueStreams: isWhole({ kind: wanted.kind, range: wanted.range ?? null }) ? names : [],
  });
}

/**
 * Like `startAndWork`, for a `start` that may return an unfinished run over the same streams. With `--detach`,
 * `dueStreams` then become due, so that a worker syncs them when that run has ended.
 */
export async function beginAndWork(
  app: App,
  start: (waiting: Waiting) => Promise<{ run: Run; started: boolean }>,
  options: RunOptions,
  {
    continues = () => false,
    dueStreams = [],
    ...work
  }: Omit<Work, 'begin'> & { continues?: (run: Run) => boolean; dueStreams?: readonly string[] },
): Promise<number> {
  if (options.detach) {
    const [{ producer }] = await Promise.all([app.queue(), noteFormerProcesses(app)]);
    const { run, started } = await start({ onWait: printNote });
    if (run.pausedAt) return printPaused(run, options, work.extraJson);
    await producer.enqueueRun(run.id, run.lane);
    if (!started) await markDue((await app.state()).db, dueStreams, 'busy');
    const isDue = dueStreams.length > 0;
    const unfinished = `Run ${run.id} over the same streams is unfinished`;
    const due = `${dueStreams.join(', ')} ${dueStreams.length === 1 ? 'is' : 'are'} due`;
    print(options, { ...work.extraJson, run: runToJson(run), started }, [
      started
        ? `Run ${run.id} is queued. Watch it with: slotsync status`
        : isDue
          ? `${unfinished}. ${due}: a worker starts the sync when the run has ended.`
          : `${unfinished}, so nothing was queued. Repeat the command when that run has ended: slotsync status`,
    ]);
    return started || isDue ? EXIT.done : EXIT.failed;
  }
  const begin = async (waiting: Waiting) => {
    const { run, started } = await start(waiting);
    return { run, started, isOurs: started || continues(run) };
  };
  return workRun(app, { ...work, begin }, options);
}

/** Works the queue until the run that `begin` starts or finds has ended. Returns the exit code. */
export async function workRun(
  app: App,
  { begin, resumeCommand, extraJson }: Work,
  { json = false, concurrency, timeout }: RunOptions,
): Promise<number> {
  const state = await app.state();
  state.prepareCopy();
  const queue = await app.queue();
  const { fingerprints } = await app.configuration();
  const opening = [queue.workers({ concurrency }), app.timeZone(), noteFormerProcesses(app)] as const;
  const [workers, timeZone] = await Promise.all(opening);
  const readQuotaUse = createQuotaUseReader(await app.limiter());
  const stop = listenForSignals(workers);
  const timer = timeout === undefined ? undefined : setTimeout(endInTime, timeout * 60_000);
  function endInTime(): void {
    stop.end(`Stopping after ${timeout} min, as --timeout says: finishing the work in flight.`);
  }
  const whyStopped = () => {
    const failing = workers.failing();
    // A single failure is not reported, because the next request may succeed.
    const isLasting = failing !== null && Date.now() - failing.since.getTime() > LASTING_MS;
    const stopped = workers.sendingStopped() ?? (isLasting ? failing : null);
    return stopped === null
      ? undefined
      : `Nothing has been sent since ${formatTime(stopped.since, timeZone)}: ${stopped.code}: ${stopped.message}`;
  };
  try {
    let run: Run | undefined;
    let isOurs = false;
    while (!isOurs && !stop.requested()) {
      const begun = await begin({ onWait: printNote, signal: stop.signal }).catch((error: unknown) => {
        if (!stop.requested()) throw error;
      });
      if (!begun) break;
      const { started } = begun;
      ({ run, isOurs } = begun);
      const { id, streams } = run;
      if (run.pausedAt) return printPaused(run, { json }, extraJson);
      // A run that this command did not start is already in the queue.
      const worked = started ? workers.work(run) : workers.start();
      if (!started && !json) printLine(describeOther(run, { isOurs, isOwn: queue.producer.isOwn(run) }));
      const look = () => endLeftRuns(state.db, fingerprints, { streams });
      const { start: workRest } = workers;
      run = await waitForRun(state, id, { worked, workRest, stop, readQuotaUse, whyStopped, look });
      if (!json && !isOurs && run.finishedAt)
        printLine(`Run ${id} ended: ${run.status}. Its results: slotsync runs ${id}`);
    }
    if (run && !run.finishedAt) {
      // Stopping finishes the batches in flight. They may have been the last ones, so the run is read again.
      await workers.stop();
      run = await readRun(state.db, run.id);
    }
    if (!run?.finishedAt || !isOurs) {
      const reason = whyStopped();
      if (reason !== undefined) printNote(`${reason}.`);
      if (!isOurs)
        printNote('Stopped before this command started its run. To start the run, repeat the command.');
      else if (run?.pausedAt) printNote(`Stopped. ${describePaused(run)}`);
      else printNote(`Stopped. Accepted records are stored. To continue: ${resumeCommand}`);
      return EXIT.failed;
    }
    if (json) printJson({ ...extraJson, run: runToJson(run) });
    else await printRun(state, run, timeZone);
    return exitCodeOfRun(run);
  } finally {
    clearTimeout(timer);
    await workers.stop();
    stop.ended();
  }
}

const describePaused = ({ id }: Run) =>
  `Run ${id} over these streams is paused. To continue: slotsync resume ${id}`;

function printPaused(run: Run, options: Pick<RunOptions, 'json'>, extraJson: Work['extraJson']): number {
  print(options, { ...extraJson, run: runToJson(run), started: false }, [describePaused(run)]);
  return EXIT.failed;
}

async function noteFormerProcesses(app: App): Promise<void> {
  const { fingerprints } = await app.configuration();
  const { db } = await app.state();
  const [timeZone, processes] = await Promise.all([app.timeZone(), listProcesses(db)]);
  for (const process of findFormerProcesses(processes, fingerprints))
    printNote(`${plain(describeFormer(process, await readClock(db)), timeZone)}.`);
}

function describeOther({ id }: Run, { isOurs, isOwn }: { isOurs: boolean; isOwn: boolean }): string {
  if (isOurs) return `Run ${id} is unfinished. Continuing it.`;
  if (isOwn) return `Run ${id} over the same streams is unfinished. Finishing it first.`;
  return `Run ${id} over the same streams has another configuration. Waiting for the process with that configuration.`;
}

async function printRun({ db }: State, run: Run, timeZone: string): Promise<void> {
  const [facts, now] = await Promise.all([readRunFacts(db, run), readClock(db)]);
  printDocument(runDocument(facts, now), { timeZone }, undefined);
}

/** Waits until the run has ended, or the command is stopped. Shows progress on standard error. */
async function waitForRun(
  state: State,
  id: number,
  work: {
    /** Resolves when this process has worked its part of the run without the queue. */
    worked: Promise<void>;
    /** Starts the workers of the queue for the rest of the run. Only the first call has an effect. */
    workRest: () => Promise<void>;
    stop: Pick<ReturnType<typeof listenForSignals>, 'requested' | 'signal'>;
    readQuotaUse: () => Promise<number | undefined>;
    /** Returns why nothing is sent, or undefined if sending works. */
    whyStopped: () => string | undefined;
    /** Ends the run if no process may work on it any more. */
    look: () => Promise<unknown>;
  },
): Promise<Run> {
  const { worked, workRest, stop, readQuotaUse, whyStopped, look } = work;
  const progress = createProgress('records', `run ${id}`);
  let isWorked = false;
  /** True if the run was read at least once after `worked` resolved. */
  let isSeen = false;
  const over = worked.then(() => void (isWorked = true));
  over.catch(() => undefined); // where the wait has ended before
  let lookedAt = performance.now();
  try {
    while (true) {
      const everyMs = isWorked ? LOOK_EVERY_MS : LOOK_AT_OWN_EVERY_MS;
      const pause = sleep(everyMs, undefined, { signal: stop.signal }).catch(() => undefined);
      await (isSeen ? pause : Promise.race([over, pause]));
      isSeen = isWorked;
      if (performance.now() - lookedAt > LOOK_FOR_WORKERS_EVERY_MS) {
        await look();
        lookedAt = performance.now();
      }
      const run = await readRun(state.db, id);
      if (!run) throw new SlotsyncError('run_lost', `run ${id} was deleted from the state`);
      if (run.finishedAt) return run;
      if (isWorked && !stop.requested()) await workRest();
      const [{ done, total }, quotaUse] = await Promise.all([readProgress(state.db, id), readQuotaUse()]);
      const blocked = run.pausedAt ? `paused; to continue: slotsync resume ${id}` : whyStopped();
      // Draws nothing after the first signal: a third signal ends the process, and the drawing would be left behind.
      if (stop.requested()) return run;
      progress.update(done, total, { quotaUse, blocked });
    }
  } finally {
    progress.stop();
  }
}

/** Returns true if an unfinished run has the kind, streams, range and configuration of the request. */
function isRunOf(run: Run, { kind, streams, range, fingerprints }: RunRequest): boolean {
  const requested: unknown = JSON.parse(JSON.stringify(range ?? null));
  return (
    run.configuration === fingerprints?.configuration &&
    run.kind === kind &&
    isDeepStrictEqual(run.streams.toSorted(), streams.toSorted()) &&
    isDeepStrictEqual(run.range, requested)
  );
}
