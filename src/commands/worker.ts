import type { Command } from 'commander';
import { UsageError } from '../errors.js';
import { common, EXIT, withApp, type CommonOptions } from './command.js';
import { listenForSignals } from './signals.js';
import { readConcurrency } from './sync.js';

interface WorkerOptions extends CommonOptions {
  concurrency: string;
  grace: string;
}

export function addWorker(program: Command): void {
  common(program.command('worker'))
    .description('work the queue until told to stop; any number may run')
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
          const workers = await app.workers({ concurrency, patient: true });
          const signals = listenForSignals(workers, graceMs);
          try {
            await app.serveHttp(workers);
            await workers.start();
            if (!signals.requested()) app.log.info({ concurrency }, 'worker started');
            await signals.asked();
          } finally {
            await workers.stop(graceMs);
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
