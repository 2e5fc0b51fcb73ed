import type { Command } from 'commander';
import { selectStreams, type App } from '../app.js';
import { UsageError } from '../errors.js';
import type { Stream } from '../streams/streams.js';
import { startRun, type Run } from '../state/runs.js';
import { common, withApp, type CommonOptions } from './command.js';
import { printJson, printLine } from './print.js';
import { exitCodeOfRun, printRun, runToJson, waitForRun } from './run-report.js';
import { listenForSignals } from './signals.js';

interface SyncOptions extends CommonOptions {
  detach?: boolean;
  concurrency?: string;
}

export function addSync(program: Command): void {
  common(program.command('sync'))
    .argument('[streams...]', 'streams to sync (default: all)')
    .description('bring the service up to date with the mirror, once')
    .option('--detach', 'only queue the run; workers do it')
    .option('--concurrency <batches>', 'batches in work at once', '12')
    .action((names: string[], options: SyncOptions) =>
      withApp({ needs: ['mirror', 'state', 'api'], configPath: options.config }, (app) =>
        sync(app, names, options),
      ),
    );
}

async function sync(app: App, names: readonly string[], options: SyncOptions): Promise<number> {
  const concurrency = readConcurrency(options.concurrency);
  const streams = selectStreams(await app.configuration(), names);
  const state = await app.state();
  await requireSources(app, streams);
  const producer = await app.producer();
  const request = { kind: 'nightly', lane: 'nightly', streams: streams.map(({ name }) => name) } as const;

  if (options.detach) {
    const { run, started } = await startRun(state.db, request);
    await producer.enqueueRun(run.id, run.lane);
    if (options.json) printJson({ run: runToJson(run), started });
    else if (started) printLine(`Run ${run.id} is queued. Watch it with: slotsync status`);
    else printLine(`Run ${run.id} over the same streams is not finished yet; nothing was queued.`);
    return 0;
  }

  const workers = await app.workers({ concurrency });
  const stop = listenForSignals(workers);
  try {
    await workers.start();
    let run: Run | undefined;
    for (let started = false; !started && !stop.requested();) {
      const start = await startRun(state.db, request);
      started = start.started;
      if (started) await producer.enqueueRun(start.run.id, start.run.lane);
      else if (!options.json)
        printLine(`Run ${start.run.id} over the same streams is unfinished; finishing it first.`);
      run = await waitForRun(state, start.run.id, stop.requested);
    }
    if (!run?.finishedAt) {
      process.stderr.write('Stopped. What was accepted is recorded; slotsync sync goes on from there.\n');
      return 1;
    }
    if (options.json) printJson({ run: runToJson(run) });
    else await printRun(state, run);
    return exitCodeOfRun(run);
  } finally {
    await workers.stop();
    stop.ended();
  }
}

export function readConcurrency(text: string | undefined): number {
  const value = Number(text ?? 12);
  if (Number.isInteger(value) && value >= 1 && value <= 200) return value;
  throw new UsageError(`--concurrency takes a whole number from 1 to 200, not '${text}'`);
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
