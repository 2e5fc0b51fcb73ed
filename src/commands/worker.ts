import type { Command } from 'commander';
import { UsageError } from '../errors.js';
import { scheduleOf } from '../config-file.js';
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
      'work the queue and the inbox of changes, and start the nights, until told to stop; any number may run',
    )
    .option('--concurrency <batches>', 'batches in work at once', '12')
    .option('--grace <seconds>', 'time to finish what is in work when told to stop', '30')
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
          const inbox = await app.inbox();
          const both = {
            stop: async () => void (await Promise.all([inbox.stop(graceMs), workers.stop(graceMs)])),
            abort: () => {
              inbox.abort();
              workers.abort();
            },
          };
          const signals = listenForSignals(both, graceMs);
          let reconciling: Awaited<ReturnType<typeof app.keepReconciled>> | undefined;
          try {
            await app.serveHttp(workers);
            await (await app.scheduler()).start(scheduleOf(await app.configuration()));
            await workers.start();
            await inbox.start();
            if (!signals.requested()) reconciling = await app.keepReconciled();
            if (!signals.requested()) app.log.info({ concurrency }, 'worker started');
            await signals.asked();
          } finally {
            await Promise.all([both.stop(), reconciling?.stop()]);
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
