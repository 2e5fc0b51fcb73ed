import type { App } from '../app/app.js';
import { stopTogether, type Stoppable } from '../process/lifecycle.js';
import type { CommonOptions } from './command.js';
import { findExposedSecrets } from '../config/environment.js';
import { listenForSignals } from './signals.js';

interface WorkerOptions extends CommonOptions {
  concurrency?: number;
  /** Grace period in seconds for work in flight. */
  grace: number;
}

export async function worker(app: App, options: WorkerOptions): Promise<void> {
  const { concurrency } = options;
  const graceMs = 1000 * options.grace;
  for (const reason of findExposedSecrets(options.envFile))
    app.log.warn({ reason }, 'secret is not protected');
  const queue = await app.queue();
  await app.timeZone(); // of the lines that follow
  const workers = await queue.workers({ concurrency, waitForCredentials: true });
  const inbox = await queue.inboxWorker(workers);
  const parts: Stoppable[] = [inbox, workers];
  const work = stopTogether(parts);
  const signals = listenForSignals(work, graceMs);
  try {
    await queue.serveHttp(workers);
    await queue.startScheduler();
    const alerts = await queue.alertPeriodically(workers);
    if (alerts) parts.push(alerts);
    await workers.start();
    await inbox.start();
    const reconcile = signals.requested() ? undefined : await queue.reconcilePeriodically();
    if (reconcile) parts.push(reconcile);
    const verify = signals.requested() ? undefined : await queue.verifyPeriodically();
    if (verify) parts.push(verify);
    if (!signals.requested()) app.log.info({ concurrency }, 'worker started');
    await signals.firstSignal();
  } finally {
    await work.stop(graceMs);
    signals.ended();
  }
  app.log.info('worker stopped');
}
