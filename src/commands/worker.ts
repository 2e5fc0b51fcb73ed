import type { Command } from 'commander';
import { UsageError } from '../errors.js';
import { scheduleOf } from '../config-file.js';
import { stopTogether, type Stoppable } from '../lifecycle.js';
import { common, EXIT, withApp, type CommonOptions } from './command.js';
import { listenForSignals } from './signals.js';
import { readConcurrency } from './work-run.js';

interface WorkerOptions extends CommonOptions {
  concurrency: string;
  grace: string;
}

export function addWorker(program: Command): void {
  common(program.command('worker'))
    .description(
      'work the queue and the inbox of changes, and start the nightly sync, until stopped; any number may run',
    )
    .option('--concurrency <batches>', 'batches in flight at once', '12')
    .option('--grace <seconds>', 'time to finish the work in flight when stopped', '30')
    .addHelpText(
      'after',
      '\nWith HTTP_PORT set: /healthz, /readyz and /metrics at that port of every address.',
    )
    .action((options: WorkerOptions) =>
      withApp(
        {
          needs: ['mirror', 'state', 'api'],
          configPath: options.config,
          logLevel: 'info',
          isObserved: true,
        },
        async (app) => {
          const concurrency = readConcurrency(options.concurrency);
          const graceMs = readGrace(options.grace) * 1000;
          const workers = await app.workers({ concurrency, waitForCredentials: true });
          const inbox = await app.inboxWorker();
          const parts: Stoppable[] = [inbox, workers];
          const work = stopTogether(parts);
          const signals = listenForSignals(work, graceMs);
          try {
            await app.serveHttp(workers);
            await (await app.scheduler()).start(scheduleOf(await app.configuration()));
            await workers.start();
            await inbox.start();
            const reconcile = signals.requested() ? undefined : await app.reconcilePeriodically();
            if (reconcile) parts.push(reconcile);
            if (!signals.requested()) app.log.info({ concurrency }, 'worker started');
            await signals.firstSignal();
          } finally {
            await work.stop(graceMs);
            signals.ended();
          }
          app.log.info('worker stopped');
          return EXIT.done;
        },
      ),
    );
}

function readGrace(text: string): number {
  const value = Number(text);
  if (text.trim() !== '' && Number.isInteger(value) && value >= 0 && value <= 3600) return value;
  throw new UsageError(`--grace takes a whole number of seconds from 0 to 3600, not '${text}'`);
}
