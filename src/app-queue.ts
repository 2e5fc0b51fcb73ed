// Assembly of what works the queue: producer, scheduler, workers, inbox, and a worker's HTTP. Loaded only by the
// commands that queue or work something.
import type { AppBase } from './app.js';
import { streamsByName } from './config-file.js';
import { serveWorker } from './http/serve-worker.js';
import { once } from './once.js';
import { openBackend, requireQueueStore } from './queue/bullmq.js';
import { createInbox, type Inbox } from './queue/inbox-worker.js';
import { createScheduler } from './queue/nightly-scheduler.js';
import { createProducer } from './queue/producer.js';
import { createWorkers, type Workers } from './queue/workers.js';
import { requireMigrated } from './state/migrate.js';
import { reconcilePeriodically } from './sync/reconcile/reconcile-periodically.js';

export type AppQueue = Awaited<ReturnType<typeof openQueue>>;

/** Throws SlotsyncError when the queue's store cannot be reached. */
export async function openQueue(app: AppBase) {
  const { log, own } = app;
  const { state, stateId } = await app.bound();
  await requireQueueStore(app.queueStore());
  const backend = openBackend(app.queueStore(), stateId, log);
  const producer = createProducer({ backend, state });
  own(producer, producer.close);
  const streams = async () => streamsByName(await app.configuration());
  const scheduler = once(async () => {
    const opened = createScheduler({ backend, producer, log, state, streams: await streams() });
    return own(opened, opened.close);
  });

  return {
    producer,
    scheduler,

    /** Workers over every stream of the configuration; the caller starts and stops them. */
    async workers(options: { concurrency?: number; waitForCredentials?: boolean } = {}): Promise<Workers> {
      const { wake } = await scheduler();
      const [mirror, destination] = [await app.mirror(), await app.destination()];
      return createWorkers({
        ...options,
        backend,
        producer,
        log,
        meter: await app.meter(),
        wake,
        state,
        mirror,
        destination,
        probe: async (signal) => {
          await requireMigrated(state);
          await mirror.ping();
          await destination.probe('objects', { from: 0, to: 0 }, { lane: 'verify', signal });
        },
        streams: await streams(),
      });
    },

    /** Incremental sync of every stream of the configuration; the caller starts and stops it. */
    async inbox(): Promise<Inbox> {
      const { polling } = await app.configuration();
      const mirror = await app.mirror();
      return createInbox({ backend, producer, log, state, mirror, streams: await streams(), polling });
    },

    /** Reconciles every few minutes, where reservations are configured; the caller stops it. */
    async reconcilePeriodically(): Promise<{ stop(): Promise<void> } | undefined> {
      if ((await app.configuration()).reservations === undefined) return undefined;
      const deps = await app.reconciling();
      return reconcilePeriodically(deps, deps.reservations.everyMinutes);
    },

    /** Health of these workers and metrics of this process over HTTP, when HTTP_PORT asks for them. */
    async serveHttp({ phase }: Workers): Promise<void> {
      const metrics = await app.metrics();
      if (!metrics) return;
      const readings = await app.stateReadings();
      const port = app.settings.httpPort;
      const server = await serveWorker({ port, log, metrics, phase, readings, queueDepth: producer.depth });
      own(server, server.close);
    },
  };
}
