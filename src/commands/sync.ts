import type { Command } from 'commander';
import { selectStreams, type App } from '../app.js';
import { startRun } from '../state/runs/start-run.js';
import { common, withApp, type CommonOptions } from './command.js';
import { queueRun, readConcurrency, readLimit, requireSources, workRun } from './work-run.js';

interface SyncOptions extends CommonOptions {
  limit?: string;
  detach?: boolean;
  concurrency?: string;
}

export function addSync(program: Command): void {
  common(program.command('sync'))
    .argument('[streams...]', 'streams to sync (default: all)')
    .description('bring the service up to date with the mirror, once')
    .option('--limit <records>', 'write at most so many records, and retire none')
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
  const limit = readLimit(options.limit);
  const streams = selectStreams(await app.configuration(), names);
  const { db } = await app.state();
  await requireSources(app, streams);
  const range = limit === undefined ? undefined : { limit };
  const request = {
    kind: 'sync',
    startedBy: 'command',
    lane: 'sync',
    streams: streams.map(({ name }) => name),
    range,
  } as const;

  if (options.detach) return queueRun(app, request, options);
  return workRun(app, {
    // What an earlier run has planned is not what the mirror holds now: it is finished, and ours comes after it.
    begin: async () => {
      const { run, started } = await startRun(db, request);
      return { run, started, isOurs: started };
    },
    concurrency,
    json: options.json,
    resumeCommand: 'slotsync sync',
  });
}
