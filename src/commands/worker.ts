import type { Command } from 'commander';
import { common, EXIT, withApp, type CommonOptions } from './command.js';
import { listenForSignals, readConcurrency } from './sync.js';

export function addWorker(program: Command): void {
  common(program.command('worker'))
    .description('work the queue until told to stop; any number may run')
    .option('--concurrency <batches>', 'batches in work at once', '12')
    .action((options: CommonOptions & { concurrency: string }) =>
      withApp(
        { needs: ['mirror', 'state', 'api'], configPath: options.config, logLevel: 'info' },
        async (app) => {
          const concurrency = readConcurrency(options.concurrency);
          const workers = await app.workers({ concurrency });
          const stopped = new Promise<void>((resolve) => {
            const signals = listenForSignals({
              abort: workers.abort,
              stop: () =>
                workers.stop().finally(() => {
                  signals.unlisten();
                  resolve();
                }),
            });
          });
          await workers.start();
          app.log.info({ concurrency }, 'worker started');
          await stopped;
          app.log.info('worker stopped');
          return EXIT.done;
        },
      ),
    );
}
