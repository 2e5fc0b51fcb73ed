import type { App } from '../app.js';
import { scheduleOf } from '../config-file.js';
import { UsageError } from '../errors.js';
import { stopTogether, type Stoppable } from '../lifecycle.js';
import type { CommonOptions } from './command.js';
import { listenForSignals } from './signals.js';
import { readConcurrency } from './work-run.js';

interface WorkerOptions extends CommonOptions {
  concurrency: string;
  grace: string;
}

export async function worker(app: App, options: WorkerOptions): Promise<void> {
  const concurrency = readConcurrency(options.concurrency);
  const graceMs = readGrace(options.grace) * 1000;
  const queue = await app.queue();
  const workers = await queue.workers({ concurrency, waitForCredentials: true });
  const inbox = await queue.inboxWorker();
  const parts: Stoppable[] = [inbox, workers];
  const work = stopTogether(parts);
  const signals = listenForSignals(work, graceMs);
  try {
    await queue.serveHttp(workers);
    await (await queue.scheduler()).start(scheduleOf(await app.configuration()));
    await workers.start();
    await inbox.start();
    const reconcile = signals.requested() ? undefined : await queue.reconcilePeriodically();
    if (reconcile) parts.push(reconcile);
    if (!signals.requested()) app.log.info({ concurrency }, 'worker started');
    await signals.firstSignal();
  } finally {
    await work.stop(graceMs);
    signals.ended();
  }
  app.log.info('worker stopped');
}

function readGrace(text: string): number {
  const value = Number(text);
  if (text.trim() !== '' && Number.isInteger(value) && value >= 0 && value <= 3600) return value;
  throw new UsageError(`--grace takes a whole number of seconds from 0 to 3600, not '${text}'`);
}
