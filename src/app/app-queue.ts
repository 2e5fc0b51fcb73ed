// Assembles everything that works the queue: producer, scheduler, workers, inbox, and a worker's HTTP server. Loaded
// only by commands that queue or work something.
import type { AppBase } from './app.js';
import { schedulesOf, verifyScheduleOf } from '../config/config-file.js';
import { createTurns, type Stoppable } from '../process/lifecycle.js';
import { startScheduler } from '../queue/scheduler.js';
import { startPresence } from '../queue/presence.js';
import { createProducer } from '../queue/producer.js';
import { createWorkers, type Workers } from '../queue/workers.js';
import { registerFreezes } from '../state/freezes.js';
import { keepLoads } from '../state/streams.js';
import { requireMigrated } from '../state/migrate.js';
import { registerSchedule, removeSchedule, VERIFY } from '../state/schedules.js';
import type { Run } from '../state/runs/read-runs.js';
import { namesOfAsking } from '../streams/stream.js';
import { createCurrentStreams } from '../sync/run/current-streams.js';
import { reconcilePeriodically } from '../sync/reconcile/reconcile.js';
import { verifyPeriodically } from '../sync/verify/verify-periodically.js';

/** Opens the queue. Throws SlotsyncError if the queue's store cannot be reached. */
export async function openQueue(app: AppBase) {
  const { log, own } = app;
  const store = app.requireQueueStore();
  store.catch(() => undefined); // awaited below, so that a fault of the state is thrown first
  const { state, stateId } = await app.bound();
  const { fingerprints, freezes, loadedAt, isChanged } = await app.configuration();
  await Promise.all([
    // Must happen before anything is sent. Every process obeys these rows, even one with a former configuration.
    registerFreezes(state.db, freezes),
    store,
  ]);
  const place = [app.queueStore(), stateId, log, fingerprints.configuration] as const;
  const load = async () => (await import('../queue/bullmq.js')).openBullmq(...place);
  let loaded: ReturnType<typeof load> | undefined;
  const bullmq = () => (loaded ??= load());
  own(bullmq, async () => (await loaded)?.close());
  const producer = createProducer({ bullmq, state, fingerprints });
  own(producer, producer.close);
  const shared = { bullmq, producer, log, state };
  /** Serializes reads that keep a connection of the state until they end. */
  const turns = createTurns();
  /** Stops the part when the app closes, also after a failed start. Otherwise the command has already stopped it. */
  const ownStoppable = <T extends Stoppable>(part: T): T =>
    own(part, () => {
      part.abort();
      return part.stop();
    });

  return {
    producer,

    /** Starts syncs when their configured schedules are due, until the app is closed. */
    async startScheduler(): Promise<void> {
      const configured = schedulesOf(await app.configuration());
      const deps = { ...shared, streams: await app.streams(), mirror: await app.mirror() };
      await keepLoads(state.db, namesOfAsking(deps.streams.values()));
      const scheduler = await startScheduler(deps, configured);
      own(scheduler, scheduler.close);
    },

    /** Returns workers for every stream of the configuration. The caller starts and stops the workers. */
    async workers(
      options: { concurrency?: number | undefined; waitForCredentials?: boolean } = {},
    ): Promise<Workers> {
      const configuration = { ...fingerprints, loadedAt, isChanged };
      const { requestsPerSecond } = app.settings;
      const quota = { requestsPerSecond, findPlace: app.quotaPlace, sees: app.seePool };
      const [syncing, presence] = await Promise.all([
        app.syncing(state),
        startPresence({ state, log, command: app.command, configuration, quota }).then((started) =>
          own(started, started.close),
        ),
      ]);
      const { mirror, destination } = syncing;
      const probe = async (signal: AbortSignal) => {
        await requireMigrated(state);
        await mirror.ping();
        await destination.findTypes({ lane: 'verify', signal });
      };
      await app.confirmBound();
      const { ofRun: streamsOf } = createCurrentStreams(mirror, syncing.streams);
      const deps = { ...shared, ...options, ...syncing, presence, probe, streamsOf };
      return ownStoppable(createWorkers(deps));
    },

    /** Returns the incremental sync of every stream of the configuration. The caller starts and stops it. */
    async inboxWorker(workers: Workers) {
      const { createInboxWorker } = await import('../queue/inbox-worker.js');
      const { polling } = await app.configuration();
      const [mirror, streams] = [await app.mirror(), await app.streams()];
      const deps = { ...shared, bullmq: await bullmq(), workers, mirror, streams, polling };
      return ownStoppable(createInboxWorker(deps));
    },

    /** Reconciles periodically until the caller stops it. Returns undefined if no reservations are configured. */
    async reconcilePeriodically(): Promise<Stoppable | undefined> {
      if ((await app.configuration()).reservations === undefined) return undefined;
      const deps = await app.reconciling('schedule');
      const { everyMinutes } = deps.reservations;
      return ownStoppable(reconcilePeriodically(deps, { everyMinutes, turns }));
    },

    /** Verifies periodically until the caller stops it. Returns undefined if the configuration has no time for it. */
    async verifyPeriodically(): Promise<Stoppable | undefined> {
      const configuration = await app.configuration();
      const schedule = verifyScheduleOf(configuration);
      if (schedule) await registerSchedule(state.db, VERIFY, schedule);
      else await removeSchedule(state.db, VERIFY);
      if (!schedule) return undefined;
      const isReconciled = configuration.reservations !== undefined;
      const repairs = configuration.verify?.repair === 'within-limits';
      const startRepair = ({ id, lane }: Run) => producer.enqueueRun(id, lane);
      const deps = { ...(await app.verifying('schedule')), isReconciled, repairs, startRepair };
      return ownStoppable(verifyPeriodically(deps, turns));
    },

    /** Sends alerts, and heartbeats while the workers send, until it is stopped. Undefined if no channel is set. */
    async alertPeriodically({ sendingStopped }: Workers): Promise<Stoppable | undefined> {
      const { rules, ...deps } = await app.alerting();
      if (rules.mail !== undefined && !deps.channels.some(({ name }) => name === 'mail'))
        log.warn('alerts.mail is configured, but ALERT_SMTP_URL is not set: no mail is sent');
      if (deps.channels.length === 0) return undefined;
      const { alertPeriodically } = await import('../alerts/alert-periodically.js');
      return ownStoppable(alertPeriodically({ ...deps, rules, maySend: () => sendingStopped() === null }));
    },

    /** Serves health of the workers, metrics of this process and the page over HTTP, if HTTP_PORT is set. */
    async serveHttp({ phase, sendingStopped }: Workers): Promise<void> {
      const http = await app.http();
      if (!http) return;
      const quotaUsage = async () => (await app.limiter()).usage();
      const { openPage } = await import('./app-page.js');
      const page = openPage(app, { port: app.settings.httpPort, producer: async () => producer, quotaUsage });
      const server = await http.serve({ phase, sendingStopped }, producer.depth, page);
      own(server, server.close);
    },
  };
}
