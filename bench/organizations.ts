// The costs of an organization for the store that it shares with others: each has its own queues, its own quota and a worker that
// uses all of it. The service is a timer, so that the store's part and not ours is on the processors.
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import postgres from 'postgres';
import { startEmbeddedPostgres, type EmbeddedPostgres } from '../src/demo/embedded-postgres.js';
import { migrateQueue } from '../src/queue/migrate-queue.js';
import { table, type Cell } from '../src/render/table.js';
import { mostInAnySecond } from '../src/sandbox/quota.js';
import { migrate } from '../src/state/migrate.js';
import { startRedisServer, type RedisServer } from '../test/support/redis-server.js';
import { ceiling, percent, showProgress } from './figures.js';
import { withCleanup } from './installation.js';
import { describeMachine } from './machine.js';
import { LATENCY_MS, type Order, type OrganizationOptions } from './organization-options.js';
import { observePostgres, observeRedis, type ObservedStore, type StoreLoad } from './store-load.js';

const SCRIPT = fileURLToPath(new URL('organizations-process.ts', import.meta.url));
const ORGANIZATIONS = 50;
const PROCESSES = 4;
const IDLE_MS = 10_000;
/** From the first job on, before the load is measured. */
const LEAD_IN_MS = 4_000;
const LOAD_MS = 20_000;
/** More than an organization sends while queues are filled and the load is measured. */
const JOBS = 900;

interface Row {
  store: 'Redis' | 'PostgreSQL';
  organizations: number;
}

/**
 * `npm run bench -- organizations [n]`, 50 by default: n organizations on one Redis, a fifth of them before, and a fifth in
 * one PostgreSQL, each with a database of its own. About a minute a row.
 */
export async function benchOrganizations([number = String(ORGANIZATIONS)]: readonly string[]): Promise<void> {
  const most = Number(number);
  const few = Math.max(1, Math.round(most / 5));
  const rows: Row[] = [
    { store: 'Redis', organizations: few },
    { store: 'Redis', organizations: most },
    { store: 'PostgreSQL', organizations: few },
  ];
  const lines: Cell[][] = [];
  let machine = '';
  for (const [at, row] of rows.entries()) {
    await withCleanup(async (onEnd) => {
      const server = await startEmbeddedPostgres();
      onEnd(server.stop);
      const redis = row.store === 'Redis' ? await startRedisServer() : undefined;
      if (redis !== undefined) onEnd(() => redis.stop());
      const store = redis === undefined ? observePostgres(server.url) : observeRedis(redis.url);
      onEnd(store.close);
      const sql = postgres(server.url, { max: 1 });
      machine = await describeMachine({ sql });
      await sql.end();
      const organizations = await createOrganizations(row.organizations, server, redis);
      lines.push([row.store, row.organizations, ...(await measure(store, organizations, onEnd))]);
    });
    showProgress(at + 1, rows.length);
  }
  const headings = [
    'store',
    'organizations',
    'requests/s each',
    'min',
    'max',
    'of 20/(1+latency)',
    'most in 1 s',
  ];
  const busy = ['operations/s each', 'script calls', 'processor, ms/s each', 'processor of the store'];
  const idle = ['idle: operations/s each', 'processor, ms/s each'];
  const kept = ['connections each', 'KB each', 'bytes a job'];
  process.stdout.write(`${machine}\n\n${table([...headings, ...busy, ...idle, ...kept], lines)}\n`);
}

async function createOrganizations(
  count: number,
  server: EmbeddedPostgres,
  redis: RedisServer | undefined,
): Promise<OrganizationOptions[]> {
  const names = Array.from({ length: count }, (_, index) => `org_${index}`);
  if (redis !== undefined) return names.map((name) => ({ name, redisUrl: redis.url, stateUrl: '' }));
  const organizations: OrganizationOptions[] = [];
  for (const name of names) {
    const stateUrl = await server.createDatabase(name);
    await migrate(stateUrl);
    await migrateQueue({ postgresUrl: stateUrl });
    organizations.push({ name, stateUrl });
  }
  return organizations;
}

async function measure(
  store: ObservedStore,
  organizations: readonly OrganizationOptions[],
  onEnd: (close: () => unknown) => void,
): Promise<Cell[]> {
  const count = organizations.length;
  const empty = await store.read();
  const children = Array.from({ length: Math.min(PROCESSES, count) }, (_, index) => {
    const share = organizations.filter((_organization, place) => place % PROCESSES === index);
    // The addresses hold passwords, and every user can list the arguments of a process.
    const env = { ...process.env, ORGANIZATIONS: JSON.stringify(share) };
    return fork(SCRIPT, [], { env, execArgv: ['--import', 'jiti/register'] });
  });
  onEnd(() => children.forEach((child) => child.kill('SIGKILL')));
  await Promise.all(children.map(nextMessage));

  const opened = await store.read();
  const idle = await observe(store, () => pause(IDLE_MS));
  await tellAll(children, { order: 'fill', jobs: JOBS });
  const filled = await store.read();
  const sentBefore = await sentAt(children);
  await pause(LEAD_IN_MS);
  const from = performance.timeOrigin + performance.now();
  const load = await observe(store, () => pause(LOAD_MS));
  const to = performance.timeOrigin + performance.now();

  const all = await sentAt(children);
  const sent = all.map((times) => times.filter((time) => time >= from && time < to).length);
  const rates = sent.map((each) => each / load.seconds);
  const mean = rates.reduce((total, rate) => total + rate, 0) / count;
  if (all.some((times) => times.length >= JOBS)) throw new Error('an organization ran out of jobs');
  const each = (value: number, { seconds }: { seconds: number }) => value / seconds / count;
  const memory = (more: StoreLoad, less: StoreLoad, parts: number) =>
    more.memoryBytes === undefined || less.memoryBytes === undefined
      ? undefined
      : (more.memoryBytes - less.memoryBytes) / parts;
  const ownBytes = memory(opened, empty, count);
  const bytesOfJob = memory(filled, opened, count * JOBS - sum(sentBefore));
  return [
    ...[mean, Math.min(...rates), Math.max(...rates)].map((rate) => rate.toFixed(2)),
    percent(mean / ceiling(LATENCY_MS)),
    Math.max(...all.map(mostInAnySecond)),
    each(load.operations, load).toFixed(0),
    load.scripts === undefined ? '–' : each(load.scripts, load).toFixed(0),
    each(1000 * load.processorSeconds, load).toFixed(1),
    percent(load.processorSeconds / load.seconds),
    each(idle.operations, idle).toFixed(1),
    each(1000 * idle.processorSeconds, idle).toFixed(2),
    ((opened.connections - empty.connections) / count).toFixed(1),
    ownBytes === undefined ? '–' : Math.round(ownBytes / 1024),
    bytesOfJob === undefined ? '–' : Math.round(bytesOfJob),
  ];
}

/** The work that the store did meanwhile. */
async function observe(store: ObservedStore, work: () => Promise<unknown>) {
  const before = await store.read();
  const startedAt = performance.now();
  await work();
  const after = await store.read();
  const difference = (of: (load: StoreLoad) => number) => of(after) - of(before);
  return {
    seconds: (performance.now() - startedAt) / 1000,
    operations: difference((load) => load.operations),
    processorSeconds: difference((load) => load.processorSeconds),
    scripts: after.scripts === undefined ? undefined : difference((load) => load.scripts ?? 0),
  };
}

/** Sends an order to every process and returns their answers. */
function tellAll(children: readonly ChildProcess[], order: Order): Promise<unknown[]> {
  return Promise.all(
    children.map((child) => {
      const answered = nextMessage(child);
      child.send(order);
      return answered;
    }),
  );
}

/** Throws when the process ends instead. */
async function nextMessage(child: ChildProcess): Promise<unknown> {
  const ended = once(child, 'exit').then(() => Promise.reject(new Error('a process of workers has ended')));
  ended.catch(() => undefined); // it ends when the row is measured
  return ((await Promise.race([once(child, 'message'), ended])) as unknown[])[0];
}

/** When each organization's requests were sent so far. */
async function sentAt(children: readonly ChildProcess[]): Promise<number[][]> {
  const told = (await tellAll(children, { order: 'tell' })) as Record<string, number[]>[];
  return told.flatMap((each) => Object.values(each));
}

const sum = (times: readonly number[][]) => times.reduce((total, each) => total + each.length, 0);
