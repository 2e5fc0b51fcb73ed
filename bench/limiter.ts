// The quota's limiter beside what one would take instead: several processes, one at a time and all in one run, against
// a service that takes its time. What counts is what the service would have refused, and how much got through.
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Redis } from 'ioredis';
import postgres from 'postgres';
import { table, type Cell } from '../src/report/format.js';
import { createProgress } from '../src/report/progress.js';
import { startEmbeddedPostgres } from '../src/demo/embedded-postgres.js';
import { mostInAnySecond } from '../src/sandbox/arrivals.js';
import { migrate } from '../src/state/migrate.js';
import { startRedisServer } from '../test/support/redis-server.js';
import { startClients, type Clients } from './clients.js';
import { ceiling, judge, median, RATE, steadyRate, type Verdicts } from './judge.js';
import { startJudgedServer, type Profile } from './judged-server.js';
import { describeMachine } from './machine.js';
import { SCHEME_NAMES, SCHEMES, type SchemeName } from './schemes.js';
import { postgresCpuMicros, redisCpuMicros } from './store-cpu.js';

const LAN: Profile = { name: 'LAN 8 ms', medianMs: 7.8, sigma: 0.25, leastMs: 4, mostMs: 20 };
const NEAR: Profile = { name: '47 ms', medianMs: 43.5, sigma: 0.4, leastMs: 15, mostMs: 140 };
const FAR: Profile = { name: '121 ms, wide', medianMs: 101, sigma: 0.75, leastMs: 20, mostMs: 400 };

const CONCURRENCY = 24;
const ASK_EVERY_MS = 700;
/** Boot guards and first bursts are judged, but not taken for the rate. */
const LEAD_IN_MS = 2_300;
const WAITING_PROCESSES = 12;
const WARM_UP = 300;
const ACQUIRES = 3_000;

interface CellPlan {
  profile: Profile;
  processes: number;
  scheme: SchemeName;
}

interface CellResult extends CellPlan {
  perSecond: number;
  share: number;
  most: number;
  arrivals: number;
  refused: Verdicts;
  /** Requests of the process that got the fewest, to those of the one that got the most. */
  evenness: number | undefined;
  /** Of the better lane; of those still waiting at the end, what they had waited by then. */
  waitsMs: number[];
  storeLoad: number | undefined;
}

type Stores = Awaited<ReturnType<typeof startStores>>;

interface Bench {
  stores: Stores;
  server: Awaited<ReturnType<typeof startJudgedServer>>;
  clients: Clients;
}

/**
 * `npm run bench -- limiter [--quick] [--seconds 7] [--only slotsync] [--latency 121]`: seconds measured per cell;
 * limiters and profiles whose name holds the text.
 */
export async function benchLimiter(args: readonly string[]): Promise<void> {
  const { values } = parseArgs({
    args: [...args],
    options: {
      quick: { type: 'boolean' },
      seconds: { type: 'string' },
      only: { type: 'string', default: '' },
      latency: { type: 'string', default: '' },
    },
  });
  const quick = values.quick ?? false;
  const measureMs = 1000 * Math.max(3, Number(values.seconds ?? (quick ? 4 : 7)));
  const [profiles, counts] = quick
    ? [[NEAR], [4]]
    : [
        [LAN, NEAR, FAR],
        [1, 4, 8],
      ];
  const names = SCHEME_NAMES.filter((name) => name.includes(values.only));
  const plans = profiles
    .filter(({ name }) => name.includes(values.latency))
    .flatMap((profile) =>
      counts.flatMap((processes) => names.map((scheme) => ({ profile, processes, scheme }))),
    );

  const stores = await startStores();
  const server = await startJudgedServer();
  const clients = startClients(WAITING_PROCESSES);
  const bench = { stores, server, clients };
  const progress = createProgress('limiter');
  const say = (text: string) => process.stdout.write(`${text}\n\n`);
  try {
    say(await describeMachine(stores));
    const cells: CellResult[] = [];
    for (const [at, plan] of plans.entries()) {
      cells.push(await runCell(bench, plan, measureMs));
      progress.update(at + 1, plans.length);
    }
    progress.stop();
    say(describeCells(cells));
    if (!quick) say(describeSchemes(cells, names));
    if (values.latency !== '') return;

    const costs: Cell[][] = [];
    for (const scheme of quick ? names.slice(0, 2) : names) {
      const cost = await measureCost(stores, scheme);
      const waiting = { profile: NEAR, processes: WAITING_PROCESSES, scheme };
      const { storeLoad } = await runCell(bench, waiting, measureMs);
      costs.push([scheme, whole(cost.store), whole(cost.client), percent(storeLoad)]);
    }
    say(
      table(
        ['', 'store, µs a request', 'client, µs a request', `store, ${WAITING_PROCESSES} processes waiting`],
        costs,
      ),
    );
  } finally {
    await clients.end();
    server.close();
    await stores.stop();
  }
}

async function startStores() {
  const [redisServer, postgresServer] = await Promise.all([startRedisServer(), startEmbeddedPostgres()]);
  const postgresUrl = await postgresServer.createDatabase('bench');
  await migrate(postgresUrl);
  const redis = new Redis(redisServer.url);
  const sql = postgres(postgresUrl, { max: 1, onnotice: () => undefined });
  return {
    redis,
    sql,
    urls: { redisUrl: redisServer.url, postgresUrl },
    cpuMicros: (scheme: SchemeName) =>
      scheme.endsWith('PostgreSQL') ? postgresCpuMicros(postgresServer.dataDirectory) : redisCpuMicros(redis),
    async stop(): Promise<void> {
      redis.disconnect();
      await sql.end({ timeout: 1 });
      await Promise.all([redisServer.stop(), postgresServer.stop()]);
    },
  };
}

async function runCell(
  { stores, server, clients }: Bench,
  plan: CellPlan,
  measureMs: number,
): Promise<CellResult> {
  const { profile, processes, scheme } = plan;
  await stores.redis.flushall();
  const key = `bench-${crypto.randomUUID()}`;
  const backlog = Math.ceil(((LEAD_IN_MS + measureMs) / 1000) * 2 * RATE);
  await clients.open(processes, (client) => ({
    order: 'open',
    scheme,
    client,
    serverUrl: server.url,
    askEveryMs: client === 0 ? ASK_EVERY_MS : 0,
    options: {
      ...stores.urls,
      key,
      concurrency: CONCURRENCY,
      backlog: client === 0 ? backlog : 0,
      unlimited: false,
    },
  }));
  server.begin(profile);
  clients.start();
  await pause(LEAD_IN_MS);
  const [from, cpuBefore] = [performance.now(), await stores.cpuMicros(scheme)];
  await pause(measureMs);
  const [to, cpuAfter] = [performance.now(), await stores.cpuMicros(scheme)];
  const arrivals = [...server.arrivals()];
  const { meanLatencyMs, waitingMs } = await clients.stop();

  const moments = arrivals.map(({ at }) => at);
  const perSecond = steadyRate(moments, from, to);
  const steady = arrivals.filter(({ at }) => at >= from);
  const perClient = Array.from(
    { length: processes },
    (_, client) => steady.filter((each) => each.client === client && each.lane === 'worse').length,
  );
  return {
    ...plan,
    perSecond,
    share: perSecond / ceiling(meanLatencyMs),
    most: mostInAnySecond(moments),
    arrivals: moments.length,
    refused: judge(moments),
    evenness: processes === 1 ? undefined : Math.min(...perClient) / Math.max(...perClient),
    waitsMs: [
      ...steady.filter(({ lane }) => lane === 'better').map(({ waitedMs }) => waitedMs),
      ...waitingMs,
    ],
    storeLoad:
      cpuBefore === undefined || cpuAfter === undefined
        ? undefined
        : (cpuAfter - cpuBefore) / (1000 * (to - from)),
  };
}

/** Microseconds of processor time of the store and of a client, for each grant and what comes after its answer. */
async function measureCost(stores: Stores, name: SchemeName) {
  await stores.redis.flushall();
  let sent = 0;
  let started: () => void = () => undefined;
  let finished: () => void = () => undefined;
  const warm = new Promise<void>((resolve) => (started = resolve));
  const done = new Promise<void>((resolve) => (finished = resolve));
  const scheme = await SCHEMES[name]({
    ...stores.urls,
    key: `bench-${crypto.randomUUID()}`,
    concurrency: 1,
    backlog: WARM_UP + ACQUIRES,
    unlimited: true,
    async send() {
      sent++;
      if (sent === WARM_UP) started();
      if (sent === WARM_UP + ACQUIRES) finished();
    },
  });
  scheme.start();
  await warm;
  const [storeBefore, clientBefore] = [await stores.cpuMicros(name), process.cpuUsage()];
  await done;
  const client = process.cpuUsage(clientBefore);
  const storeAfter = await stores.cpuMicros(name);
  await scheme.close();
  return {
    store:
      storeBefore === undefined || storeAfter === undefined
        ? undefined
        : (storeAfter - storeBefore) / ACQUIRES,
    client: (client.user + client.system) / ACQUIRES,
  };
}

function describeCells(cells: readonly CellResult[]): string {
  return table(
    [
      'latency',
      'processes',
      'limiter',
      'requests/s',
      'of 20/(1+latency)',
      'most in 1 s',
      'refused: sliding',
      'fixed',
      'bucket',
      'least/most',
      'better lane: median',
      'worst',
    ],
    cells.map((cell) => [
      cell.profile.name,
      cell.processes,
      cell.scheme,
      cell.perSecond.toFixed(2),
      percent(cell.share),
      cell.most,
      `${cell.refused.sliding} of ${cell.arrivals}`,
      cell.refused.fixed,
      cell.refused.bucket,
      cell.evenness?.toFixed(2) ?? '–',
      ...describeWaits(cell.waitsMs),
    ]),
  );
}

/** All cells of a scheme together; shares as least, median, greatest. */
function describeSchemes(cells: readonly CellResult[], names: readonly SchemeName[]): string {
  return table(
    [
      'limiter',
      'of 20/(1+latency)',
      'most in 1 s',
      'refused: sliding',
      'fixed',
      'bucket',
      'least/most',
      'better lane: median',
      'worst',
    ],
    names.map((scheme) => {
      const own = cells.filter((cell) => cell.scheme === scheme);
      const sum = (of: (cell: CellResult) => number) => own.reduce((total, cell) => total + of(cell), 0);
      const shares = own.map(({ share }) => share);
      const evenness = own.flatMap((cell) => cell.evenness ?? []);
      return [
        scheme,
        [Math.min(...shares), median(shares), Math.max(...shares)].map(percent).join(' / '),
        Math.max(...own.map(({ most }) => most)),
        `${sum(({ refused }) => refused.sliding)} of ${sum(({ arrivals }) => arrivals)}`,
        sum(({ refused }) => refused.fixed),
        sum(({ refused }) => refused.bucket),
        median(evenness).toFixed(2),
        ...describeWaits(own.flatMap(({ waitsMs }) => waitsMs)),
      ];
    }),
  );
}

function describeWaits(waitsMs: readonly number[]): [string, string] {
  return waitsMs.length === 0
    ? ['–', '–']
    : [`${whole(median(waitsMs))} ms`, `${whole(Math.max(...waitsMs))} ms`];
}

function percent(share: number | undefined): string {
  return share === undefined ? '–' : `${(100 * share).toFixed(1)} %`;
}

function whole(value: number | undefined): string {
  return value === undefined ? '–' : String(Math.round(value));
}
