// A whole installation whose every part can be taken away: a PostgreSQL and a Redis of its own, the service, worker
// processes under a supervisor, and someone who asks for runs.
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import postgres from 'postgres';
import { startEmbeddedPostgres } from '../../src/demo/embedded-postgres.js';
import { migrateQueue } from '../../src/queue/migrate-queue.js';
import type { SandboxOptions } from '../../src/sandbox/sandbox.js';
import { migrate } from '../../src/state/migrate.js';
import { createRoomsAndCourses, type ChaosMirror } from './chaos-mirror.js';
import { API, startChaosService } from './chaos-service.js';
import { createWorkerPool } from './chaos-workers.js';
import { start, type Finished } from './program.js';
import { DELAY_MS } from './distance.js';
import { startHop, type Hop } from './hop.js';
import { startRedisServer } from './redis-server.js';

export type Store = 'PostgreSQL' | 'Redis';

export interface ChaosOptions {
  store: Store;
  /** A hundred rooms, unless given. */
  mirror?: ChaosMirror;
  requestTimeoutMs?: number;
  sandbox?: SandboxOptions;
  /** The programs reach the stores over networks of their own, which a test can disturb. */
  hasNetwork?: boolean;
}

export type ChaosWorld = Awaited<ReturnType<typeof openChaosWorld>>;

/** Database users made beforehand: a worker may be started while the database is away. */
const MOST_WORKERS = 200;
/** A command that has not ended by then never will. */
const COMMAND_WITHIN_MS = 180_000;

export async function openChaosWorld(options: ChaosOptions) {
  const { store, requestTimeoutMs = 5_000, hasNetwork = DELAY_MS > 0 } = options;
  const { mirror = createRoomsAndCourses({ rooms: 100, courses: 0 }) } = options;
  const openedAt = Date.now();
  const events: { at: number; what: string }[] = [];
  const noteAt = (at: number, what: string): void => {
    events.push({ at, what });
  };
  const note = (what: string) => noteAt(Date.now(), what);

  const closers: (() => Promise<unknown>)[] = [];
  const close = async () => {
    const failures: unknown[] = [];
    for (let closer = closers.pop(); closer; closer = closers.pop()) {
      await closer().catch((error: unknown) => failures.push(error));
    }
    if (failures.length > 0) throw new AggregateError(failures, 'closing failed');
  };

  async function open() {
    const server = await startEmbeddedPostgres();
    closers.push(server.stop);
    const url = await server.createDatabase('chaos');
    const redis = store === 'Redis' ? await startRedisServer({ keepsData: true }) : undefined;
    if (redis) closers.push(redis.kill);
    await migrate(url);
    if (!redis) await migrateQueue({ postgresUrl: url });

    const sql = postgres(url, { max: 4, onnotice: () => undefined, backoff: () => 0.1 });
    closers.push(() => sql.end({ timeout: 1 }));
    await prepare(sql, new URL(url).password);
    await mirror.fill(sql);

    const service = await startChaosService({ ...API, schema: mirror.schema, rate: 20, ...options.sandbox });
    closers.push(service.close);

    const folder = await mkdtemp(path.join(tmpdir(), 'slotsync-chaos-'));
    closers.push(() => rm(folder, { recursive: true, force: true }));
    await writeFile(
      path.join(folder, 'sync.config.ts'),
      mirror.configuration.replace('REQUEST_TIMEOUT_MS', String(requestTimeoutMs)),
    );
    const networks: Hop[] = [];
    const reach = async (address: string) => {
      if (!hasNetwork) return address;
      const hop = await startHop(address, { delayMs: DELAY_MS });
      closers.push(hop.close);
      networks.push(hop);
      return hop.through(address);
    };
    const reached = { postgres: await reach(url), redis: redis && (await reach(redis.url)) };
    const env = (user = 'postgres') => ({
      MIRROR_DATABASE_URL: reached.postgres,
      MIRROR_STATEMENT_SECONDS: '60', // a silent connection to it is closed a minute later
      STATE_STATEMENT_SECONDS: '60',
      STATE_DATABASE_URL: Object.assign(new URL(reached.postgres), { username: user }).href,
      REDIS_URL: reached.redis,
      API_BASE_URL: service.url,
      API_ORGANIZATION_ID: API.organizationId,
      API_KEY: API.apiKey,
    });
    const workers = createWorkerPool({
      note,
      spawn: (name) => start(['worker'], env(name), folder),
    });
    closers.push(workers.close);
    const begin = (args: readonly string[]) => start(args, env(), folder);
    return { server, redis, networks, sql, service, workers, begin };
  }

  const opened = await open().catch(async (error: unknown) => {
    await close().catch(() => undefined); // the first failure is the one to know
    throw error;
  });
  const { server, redis, networks, sql, service, workers, begin } = opened;

  return {
    store,
    mirror,
    requestTimeoutMs,
    sql,
    service,
    workers,
    note,
    /** Notes what is known to have happened at that time, in milliseconds since 1970. */
    noteAt,
    /** A line for each event, in seconds since the world was opened. */
    timeline: () =>
      events
        .sort((a, b) => a.at - b.at)
        .map(({ at, what }) => `${((at - openedAt) / 1000).toFixed(2).padStart(7)}  ${what}`)
        .join('\n'),

    /** Runs a command to its end; one that never ends is ended, and has no exit code. */
    async run(args: readonly string[]): Promise<Finished> {
      const running = begin(args);
      const timer = setTimeout(() => running.child.kill('SIGKILL'), COMMAND_WITHIN_MS);
      try {
        return await running.finished;
      } finally {
        clearTimeout(timer);
      }
    },

    postgres: {
      restart: server.restart,
      /** As when its machine loses power for a while: nothing is said, and unlogged tables come back empty. */
      async crash(downMs: number): Promise<void> {
        const [pid] = (await readFile(path.join(server.dataDirectory, 'postmaster.pid'), 'utf8')).split('\n');
        process.kill(Number(pid), 'SIGQUIT');
        await pause(downMs);
        await server.restart();
      },
    },
    redis,
    /** To PostgreSQL, and to Redis where there is one; none unless asked for. */
    networks,

    /**
     * Plays that a claim's minute has passed, for the claims of these workers only: they have been dead or frozen for
     * a while, and nothing of theirs is on its way to the service any more.
     */
    async endClaimsOf(names: readonly string[]): Promise<number> {
      const ended = await sql.begin(async (tx) => {
        await tx`SET LOCAL lock_timeout = '1s'`;
        const tokens = tx`SELECT token FROM chaos.claims WHERE owner IN ${sql(['', ...names])}`;
        await tx`
          UPDATE slotsync.object_claims SET claimed_until = now() - interval '1 second'
          WHERE claimed_by IN (${tokens}) AND claimed_until > now()`;
        return tx`
          UPDATE slotsync.records SET claimed_until = now() - interval '1 second'
          WHERE claimed_by IN (${tokens}) AND claimed_until > now()`;
      });
      return ended.count;
    },

    /** Plays that the time has passed in which a write whose answer was lost may still be carried out: none is. */
    async makeChecksDue(): Promise<void> {
      await sql`UPDATE slotsync.records SET check_after = now() WHERE check_after IS NOT NULL`;
    },

    close,
  };
}

/** Each worker has a role of its own, with this password, so that the server says whose a claim is. */
async function prepare(sql: postgres.Sql, password: string): Promise<void> {
  const [database] = await sql<{ name: string }[]>`SELECT current_database() AS name`;
  // The server's setting would lose what was committed last when it crashes, which no real one does.
  await sql.unsafe(`
    ALTER DATABASE ${database?.name} SET synchronous_commit = on;
    CREATE SCHEMA chaos;
    CREATE TABLE chaos.claims (token text PRIMARY KEY, owner text NOT NULL);
    CREATE FUNCTION chaos.note_claim() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN
        INSERT INTO chaos.claims VALUES (NEW.claimed_by, session_user) ON CONFLICT DO NOTHING;
        RETURN NULL;
      END $$;
    CREATE TRIGGER note_claim AFTER INSERT OR UPDATE OF claimed_by ON slotsync.records
      FOR EACH ROW WHEN (NEW.claimed_by IS NOT NULL) EXECUTE FUNCTION chaos.note_claim();
    CREATE TRIGGER note_claim AFTER INSERT OR UPDATE OF claimed_by ON slotsync.object_claims
      FOR EACH ROW EXECUTE FUNCTION chaos.note_claim();
    DO $$ BEGIN
      FOR i IN 1..${MOST_WORKERS} LOOP EXECUTE format('CREATE ROLE worker_%s SUPERUSER LOGIN PASSWORD %L', i, '${password}'); END LOOP;
    END $$;`);
}
