// Everything between a mirror and the service, opened for one test: real database, real sockets, only the service
// played. A test fills the mirror, calls `sync`, and looks at the sandbox, the state and the arrivals.
import { setTimeout as pause } from 'node:timers/promises';
import { pino } from 'pino';
import postgres from 'postgres';
import { createAppBase } from '../../src/app/app.js';
import { checkConfiguration } from '../../src/config/config-file.js';
import { loadSettings } from '../../src/config/settings.js';
import { completeDialect } from '../../src/dialect/complete-dialect.js';
import type { DialectDefinition } from '../../src/dialect/dialect.js';
import { createLimiter } from '../../src/destination/quota/limiter.js';
import { createPostgresStore } from '../../src/destination/quota/postgres-store.js';
import type { QuotaRules } from '../../src/destination/quota/quota-rules.js';
import { codeOf, messageOf } from '../../src/errors/errors.js';
import { noMeter, type Meter, type Outcomes } from '../../src/process/meter.js';
import { createMirror, type Mirror } from '../../src/mirror/mirror.js';
import { decideRetry } from '../../src/queue/executor.js';
import type { GateRule } from '../../src/sandbox/request-steps.js';
import type { SandboxOptions } from '../../src/sandbox/sandbox.js';
import { startSandbox } from '../../src/sandbox/sandbox.js';
import type { SandboxSchema } from '../../src/sandbox/schema.js';
import { openState } from '../../src/state/database.js';
import { addChanges } from '../../src/state/inbox/add-changes.js';
import { addDueChecks, takeChanges } from '../../src/state/inbox/take-changes.js';
import type { GateChoice } from '../../src/state/gates/answers.js';
import { advanceRun, finishPlanning } from '../../src/state/runs/advance-run.js';
import { takePlanning } from '../../src/state/runs/claim-planning.js';
import { insertBatches, readBatch } from '../../src/state/runs/batches.js';
import { failRun } from '../../src/state/runs/end-run.js';
import { failBatch } from '../../src/state/runs/finish-batch.js';
import { readRun, type Run } from '../../src/state/runs/read-runs.js';
import { startRun } from '../../src/state/runs/start-run.js';
import type { RecordStatus } from '../../src/state/schema.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { NO_RESERVATIONS } from '../../src/streams/bookings.js';
import type { Stream } from '../../src/streams/stream.js';
import { applyBatch, type ApplyDeps } from '../../src/sync/apply/apply-batch.js';
import { openLines } from '../../src/sync/apply/fill-requests.js';
import { approve } from '../../src/sync/operator/approve.js';
import { afterFailure, NO_FAILURES, type EarlierFailures } from '../../src/sync/apply/narrow-failures.js';
import { createNameCheck } from '../../src/sync/plan/unknown-names.js';
import { createCurrentStreams } from '../../src/sync/run/current-streams.js';
import { planRun } from '../../src/sync/plan/plan-run.js';
import { createRecognizer } from '../../src/sync/run/recognize-databases.js';
import type { VerifyDeps } from '../../src/sync/verify/verify.js';
import { createDatabase } from './services.js';
import { until } from './wait.js';
import { OPERATOR } from './operator.js';

/** A row of `slotsync.records`, as psql shows it. */
export interface RecordRow {
  local_key: string;
  external_id: string | null;
  row_external_id: string | null;
  former_key: string | null;
  status: RecordStatus;
  error_code: string | null;
  error_message: string | null;
  attempts: number;
  in_doubt: boolean;
  claimed_by: string | null;
  object_hash: string | null;
  waits_for: string | null;
}

export interface SyncResult {
  run: Run;
  /** Errors that planning and applying threw, in order. */
  errors: unknown[];
}

export interface WorldOptions {
  /** The database of the test file: cleared first, and left to its owner. Without one the world makes its own. */
  database?: SharedDatabase;
  sandbox?: SandboxOptions;
  dialect?: DialectDefinition;
  /** Attempts that a batch, or a planning, has. */
  attempts?: number;
  statementSeconds?: number;
  /** The quota's rules; by default nothing waits. */
  rules?: Partial<QuotaRules>;
  /** Its batches share their requests, as those of a worker do. */
  sharesRequests?: boolean;
}

export type World = Awaited<ReturnType<typeof openWorld>>;

/** No waiting at the quota: the tests of the limiter are elsewhere. */
const QUICK: Partial<QuotaRules> = {
  bootGuardMs: 1,
  paceMs: 0,
  holdMs: 1,
  pauseDefaultMs: 20,
  pauseExtraMs: 1,
};
const DAY = 24 * 60 * 60 * 1000;

/** A database with the connections that all worlds in it have: a new one costs 15 ms of processor time. */
export async function createSharedDatabase() {
  const { url, drop } = await createDatabase();
  const sql = postgres(url, { max: 3, onnotice: () => undefined });
  const state = openState({ url });
  return {
    url,
    sql,
    state,
    async drop(): Promise<void> {
      await state.close();
      await sql.end({ timeout: 1 });
      await drop();
    },
  };
}

export type SharedDatabase = Awaited<ReturnType<typeof createSharedDatabase>>;

/** Opens a world over an empty mirror. The service knows every type and field of the configuration, unless told otherwise. */
export async function openWorld(config: SlotsyncConfig, options: WorldOptions = {}) {
  const { attempts = 4 } = options;
  const check = (declared: SlotsyncConfig) => {
    const checked = checkConfiguration(declared);
    const dialect = options.dialect && completeDialect(options.dialect, 'service-dialect.ts');
    return { ...checked, service: { ...checked.service, ...(dialect && { dialect }) } };
  };
  let configuration = check(config);
  let aheadMs = 0;

  const database = options.database ?? (await createSharedDatabase());
  const { sql, state } = database;
  if (options.database) await clear(sql);
  const sandbox = await startSandbox({
    rate: 0,
    schema: schemaOf(configuration.streams),
    ...options.sandbox,
  });
  const settings = loadSettings(['mirror', 'api'], {
    MIRROR_DATABASE_URL: database.url,
    API_BASE_URL: sandbox.url,
    API_KEY: options.sandbox?.apiKey ?? 'sandbox-key',
    API_ORGANIZATION_ID: 'demo',
  });
  const lines: string[] = [];
  const log = pino({ level: 'trace' }, { write: (line: string) => void lines.push(line) });

  const store = createPostgresStore({ sql, key: 'test', rate: 100, rules: { ...QUICK, ...options.rules } });
  const limiter = createLimiter({ store });
  const metered: { stream: string; counts: Outcomes }[] = [];
  const meter: Meter = {
    ...noMeter,
    settled: (stream, counts) => void metered.push({ stream, counts: { ...counts } }),
  };
  const parts = {
    configuration,
    mirror: createMirror({
      url: database.url,
      statementSeconds: options.statementSeconds,
    }),
    state,
    limiter,
    meter,
  };
  const app = createAppBase(settings, log, { command: 'test', parts });
  const assembled = await app.syncing(state);
  const { mirror, destination } = assembled;
  let mirrorNow = mirror;

  const clock = () => performance.now() + aheadMs;
  const requests = options.sharesRequests ? openLines({ destination, log, clock }) : undefined;

  const deps = () => ({
    ...assembled,
    mirror: mirrorNow,
    history: configuration.history,
    historyDays: configuration.historyDays,
    streams: new Map(configuration.streams.map((stream) => [stream.name, stream])),
    now: aheadMs === 0 ? undefined : () => Date.now() + aheadMs,
    clock,
    ...(requests && { requests }),
    nameCheck: createNameCheck(destination),
    recognize: createRecognizer({ state, mirror: mirrorNow, log }).both,
  });

  /** As a worker that has loaded its configuration long ago. */
  let current = createCurrentStreams(mirror, deps().streams);

  /** As the producer does: the run takes its step, and the batches to be sent then are the queue. */
  async function advance(runId: number): Promise<{ queue: number[] }> {
    return { queue: (await advanceRun(state.db, runId)).map(({ id }) => id) };
  }

  async function plan(runId: number, attemptsMade = 0): Promise<{ queue: number[] }> {
    const queued = await planRun({ ...deps(), streams: await current.ofRun(runId) }, runId, { attemptsMade });
    return { queue: queued.map(({ id }) => id) };
  }

  async function apply(
    batchId: number,
    signal?: AbortSignal,
    given?: ApplyDeps,
    earlier = NO_FAILURES,
  ): Promise<{ queue: number[] }> {
    const batch = await readBatch(state.db, batchId);
    if (!batch) return { queue: [] }; // as a worker: its job was queued before a gate took its keys
    if (batch.state !== 'queued') throw new Error(`batch ${batchId} is ${batch.state}`);
    const streams = await current.ofRun(batch.runId);
    await applyBatch(given ?? { ...deps(), streams, earlier }, batch, signal);
    return advance(batch.runId);
  }

  /** Tries as the workers would, but without waiting. */
  async function attempt(
    run: (attemptsMade: number, earlier: EarlierFailures) => Promise<{ queue: number[] }>,
    fail: (reason: { code: string; message: string }) => Promise<{ queue: number[] }>,
    errors: unknown[],
  ): Promise<number[]> {
    let earlier = NO_FAILURES;
    for (let attemptsMade = 0; ;) {
      try {
        return (await run(attemptsMade, earlier)).queue;
      } catch (error) {
        errors.push(error);
        earlier = afterFailure(earlier, error);
        const { action } = decideRetry({ error, attemptsMade, attempts });
        if (action === 'fail') {
          return (await fail({ code: codeOf(error), message: messageOf(error) })).queue;
        }
        if (action === 'retry') attemptsMade++;
        await pause(5);
      }
    }
  }

  async function failBatchOf(id: number, reason: { code: string; message: string }) {
    const batch = await readBatch(state.db, id);
    if (!batch) return { queue: [] };
    await failBatch(state, batch, reason);
    return advance(batch.runId);
  }

  async function failPlanningOf(id: number, reason: { code: string; message: string }) {
    await failRun(state.db, id, reason);
    return { queue: [] };
  }

  async function finish(
    runId: number,
    queue: readonly number[],
    errors: unknown[] = [],
  ): Promise<SyncResult> {
    const waiting = [...queue];
    for (let id = waiting.shift(); id !== undefined; id = waiting.shift()) {
      const batchId = id;
      waiting.push(
        ...(await attempt(
          (_, earlier) => apply(batchId, undefined, undefined, earlier),
          (reason) => failBatchOf(batchId, reason),
          errors,
        )),
      );
    }
    const run = await readRun(state.db, runId);
    if (!run?.finishedAt) throw new Error(`run ${runId} did not end`, { cause: errors.at(-1) });
    return { run, errors };
  }

  const namesOf = (names: readonly string[]) =>
    names.length > 0 ? names : configuration.streams.map(({ name }) => name);

  async function start(names: readonly string[]): Promise<number> {
    const request = { kind: 'sync', lane: 'sync', startedBy: 'command', streams: namesOf(names) } as const;
    const { run, started } = await startRun(state.db, request);
    if (!started) throw new Error(`run ${run.id} over the same streams is not finished`);
    return run.id;
  }

  return {
    url: database.url,
    sql,
    sandbox,
    limiter,
    destination,
    mirror,
    state,
    log,
    /** Log lines of every level so far, as JSON texts. */
    lines,
    deps,
    /** Starts a sync of these streams, or of all; it is to be planned. Returns its number. */
    startRun: (...names: string[]): Promise<number> => start(names),
    /** Plans a run that was started; returns its batches that may go first. */
    planRun: plan,
    advance,
    apply,
    finish,

    /** A whole run, from the request to its end. Throws only when the run does not end. */
    async sync(...names: string[]): Promise<SyncResult> {
      const runId = await start(names);
      const errors: unknown[] = [];
      const queue = await attempt(
        (attemptsMade) => plan(runId, attemptsMade),
        (reason) => failPlanningOf(runId, reason),
        errors,
      );
      return finish(runId, queue, errors);
    },

    /** Works the inbox as a worker does, until nothing waits in it any more. Returns the runs. */
    async drainInbox(): Promise<number[]> {
      const runIds: number[] = [];
      for (;;) {
        await addDueChecks(state.db, namesOf([]));
        const taken = await takeChanges(state.db, namesOf([]));
        if (typeof taken === 'string') return runIds;
        const { runId } = taken;
        runIds.push(runId);
        const errors: unknown[] = [];
        const queue = await attempt(
          () => plan(runId),
          (reason) => failPlanningOf(runId, reason),
          errors,
        );
        await finish(runId, queue, errors);
      }
    },

    /** Pushes keys and plans the incremental run that takes them; returns its batches that may go first. */
    async planChanges(name: string, ...keys: string[]): Promise<{ runId: number; queue: number[] }> {
      await addChanges(state.db, name, keys);
      const taken = await takeChanges(state.db, namesOf([]));
      if (typeof taken === 'string') throw new Error(`the inbox says ${taken}`);
      return { runId: taken.runId, ...(await plan(taken.runId)) };
    },

    /** As if so much time had passed that no write whose answer was lost can be carried out any more. */
    passLateWrites: () =>
      sql`UPDATE slotsync.records SET synced_at = synced_at - interval '1 minute',
        check_after = CASE WHEN check_after > now() THEN now() - interval '1 second' ELSE check_after END`,

    /** A run that is planned and no more: its batches that may go first, for `apply` and `finish`. */
    async plan(...names: string[]): Promise<{ runId: number; queue: number[] }> {
      const runId = await start(names);
      return { runId, ...(await plan(runId)) };
    },

    /** Begins a batch; resolves when the service holds its first request of this kind. Other requests pass from then on. */
    async applyHeld(batchId: number, held: GateRule): Promise<{ ended: Promise<{ queue: number[] }> }> {
      sandbox.closeGate(held);
      const ended = apply(batchId);
      ended.catch(() => undefined); // the test awaits it later
      await until(() => sandbox.gate().held, { describe: `a request to be held: ${JSON.stringify(held)}` });
      sandbox.closeGate({ path: '/nothing-else' });
      return { ended };
    },

    /** A run of batches over these lists of keys, whatever the mirror holds. */
    async planBatches(name: string, lists: readonly string[][]): Promise<{ runId: number; queue: number[] }> {
      const runId = await start([name]);
      const { level } = this.stream(name);
      const planner = { runId, token: 'test' };
      await takePlanning(state.db, planner);
      const rows = lists.map((keys) => ({ runId, stream: name, level, keys, state: 'planned' as const }));
      await insertBatches(state.db, rows);
      const queued = await finishPlanning(state.db, planner, { plan: {}, holds: {} });
      return { runId, queue: queued.map(({ id }) => id) };
    },

    stream(name: string): Stream {
      const found = configuration.streams.find((stream) => stream.name === name);
      if (!found) throw new Error(`the configuration of this test has no stream ${name}`);
      return found;
    },

    /** Dependencies of a verify; nothing is paced. */
    verifying: (): VerifyDeps => ({
      ...deps(),
      startedBy: 'command',
      pace: async () => undefined,
    }),

    /** Dependencies of an approval. */
    approving: () => ({
      configuration,
      mirror,
      state,
      requireQueue: async () => undefined,
      actor: OPERATOR,
    }),

    /** An operator approves the gates that a run met: the run that this starts, from its plan to its end. */
    async approve(runId: number, choice: GateChoice & { exactly?: boolean } = {}): Promise<SyncResult> {
      const { run } = await approve(this.approving(), { runId, ...choice });
      const { queue } = await plan(run.id);
      return finish(run.id, queue);
    },

    /** Dependencies of a reconcile. */
    reconciling: () => ({
      ...deps(),
      now: () => Date.now() + aheadMs,
      startedBy: 'command' as const,
      reservations: configuration.reservations ?? NO_RESERVATIONS,
    }),

    /** As when the mirror's address names another database. The test closes it. */
    useMirror(other: Mirror): void {
      mirrorNow = other;
      current = createCurrentStreams(other, deps().streams);
    },

    /** As when the engineer edits the configuration file between two runs. */
    configure(next: SlotsyncConfig): void {
      configuration = check(next);
      current = createCurrentStreams(mirror, deps().streams);
    },

    /** The clock of everything that is given one goes forward by so many days. */
    passDays(days: number): void {
      aheadMs += days * DAY;
    },

    /** Records of a stream with an outcome, as the metrics count them. */
    metered: (stream: string, outcome: keyof Outcomes): number =>
      metered.reduce((sum, one) => sum + (one.stream === stream ? one.counts[outcome] : 0), 0),

    /** The stream's records by local key. */
    async recordsOf(stream: string): Promise<Record<string, RecordRow>> {
      const rows = await sql<RecordRow[]>`
        SELECT * FROM slotsync.records WHERE stream = ${stream} ORDER BY local_key`;
      return Object.fromEntries(rows.map((row) => [row.local_key, row]));
    },

    /** `local key → status` of the stream's records. */
    async statusesOf(stream: string): Promise<Record<string, RecordStatus>> {
      const rows = Object.values(await this.recordsOf(stream));
      return Object.fromEntries(rows.map(({ local_key, status }) => [local_key, status]));
    },

    /** Requests that wrote, since the arrivals were last cleared. */
    writes: () => sandbox.arrivals().filter(({ method }) => method === 'PUT'),

    /** The fields of an object at the service, each as one text; undefined when it is not there. */
    fieldsOf(extId: string): Record<string, string> | undefined {
      const object = sandbox.object(extId);
      return (
        object && Object.fromEntries(object.fields.map(({ fieldId, values }) => [fieldId, values.join()]))
      );
    },

    async close(): Promise<void> {
      await app.close();
      await limiter.close();
      await mirror.close();
      await sandbox.close();
      if (!options.database) await database.drop();
    },
  };
}

const TABLES =
  'records batches history history_kinds freezes exceptions actions gates held sent streams runs changes schedules freshness object_claims reservations reservations_watermark ' +
  'reservation_events cancellations links drift drift_events verifications removals processes ' +
  'request_seconds alert_messages alerts destination databases';
const NUMBERED =
  'freezes actions batches changes reservation_events runs drift_events removals alert_messages alerts';

/** As a newly migrated database is. Rows are deleted: a TRUNCATE creates a file for each table and each index anew. */
async function clear(sql: postgres.Sql): Promise<void> {
  await sql.unsafe(`
    DROP SCHEMA public CASCADE;
    CREATE SCHEMA public;
    ${TABLES.split(' ')
      .map((table) => `DELETE FROM slotsync.${table};`)
      .join('\n')}
    ${NUMBERED.split(' ')
      .map((table) => `SELECT setval('slotsync.${table}_id_seq', 1, false);`)
      .join('\n')}`);
}

/** A service whose administrator defined exactly what the streams name. */
export function schemaOf(streams: readonly Stream[]): SandboxSchema {
  const parents = new Map(
    streams.flatMap(({ type, subtypes }) => subtypes.map((subtype) => [subtype, type] as const)),
  );
  const types = new Set(streams.flatMap(({ objectTypes }) => [...objectTypes]));
  const fields = new Set(streams.flatMap(({ owned, retireFields }) => [...owned, ...retireFields.keys()]));
  return {
    types: [...types].map((extId) => ({ extId, parent: parents.get(extId) })),
    fields: [...fields].map((extId) => ({ extId })),
  };
}
