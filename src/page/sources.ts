// Sources of the pages: readings of the state, each kept for a moment, so that many open pages are no more load than one.
import { cacheReading } from '../http/cached-reading.js';
import { readFacts, readQuota, type Situation } from '../situation/situation.js';
import { estimateSecondsLeft } from '../situation/run-facts.js';
import { createTurns } from '../process/lifecycle.js';
import { createPace } from '../render/progress.js';
import type { QuotaUsage } from '../destination/quota/limiter.js';
import { readClock, type Queries, type State } from '../state/database.js';
import type { Binding } from '../state/destination-binding.js';
import { listRequestMinutes, readRequestTotals } from '../state/requests.js';
import { inSnapshot } from '../state/snapshot.js';

const SECOND = 1000;
const HOUR = 60 * 60 * SECOND;
/** A reading takes at most a tenth of the time. */
const KEEP = { keepMs: SECOND, keepTimes: 9, withinMs: 5 * SECOND };
const LONGEST_STATEMENT_MS = 10 * SECOND;
/** Pages whose readings are kept. */
const MOST_PAGES = 50;

export interface SourceDeps {
  state: () => Promise<State>;
  configuredStreams: () => Promise<string[]>;
  quotaUsage: (owner: Binding) => Promise<QuotaUsage>;
  requestsPerSecond: number;
  /** A reading is given up after a statement that takes longer. */
  longestStatementMs?: number;
}

export type Sources = ReturnType<typeof createSources>;

export function createSources({
  state,
  configuredStreams,
  quotaUsage,
  requestsPerSecond,
  longestStatementMs = LONGEST_STATEMENT_MS,
}: SourceDeps) {
  const estimate = createEstimates(requestsPerSecond);
  const turns = createTurns();

  /** Only one reading at a time, so that whoever looks leaves a connection of the state for the work. */
  const cached = <T>(read: (db: Queries) => Promise<T>, keep = KEEP) =>
    cacheReading(async () => inSnapshot((await state()).db, read, { limitMs: longestStatementMs }), {
      ...keep,
      inTurn: turns.take,
    });

  const readNow = async (db: Queries) => {
    const facts = await readFacts(db, { streams: await configured() });
    return { ...facts, secondsLeft: estimate(facts) };
  };

  async function readHour(db: Queries) {
    const now = await readClock(db);
    const minutes = await listRequestMinutes(db, 61);
    return { minutes, totals: await readRequestTotals(db, new Date(now.getTime() - HOUR), now) };
  }

  /** Undefined: the configuration could not be read. */
  const configured = () => configuredStreams().catch(() => undefined);

  const open = () => {
    const now = cached(readNow);
    return {
      now,
      quota: cacheReading(async () => readQuota((await now()).binding, quotaUsage), KEEP),
      hour: cached(readHour, { ...KEEP, keepMs: 5 * SECOND }),
      /** By the address of the page. */
      pages: new Map<string, () => Promise<unknown>>(),
    };
  };
  let readings = open();

  return {
    requestsPerSecond,
    configured,
    now: async () => ({ ...(await readings.now()), quota: await readings.quota() }),
    hour: () => readings.hour(),

    /** A page's own reading of the state, kept in the same way. */
    async read<T>(address: string, read: (db: Queries) => Promise<T>): Promise<T> {
      const { pages } = readings;
      const known = pages.get(address);
      const reading = known ?? cached<unknown>(read);
      pages.delete(address);
      pages.set(address, reading); // the latest last
      const [oldest] = pages.keys();
      if (pages.size > MOST_PAGES && oldest !== undefined) pages.delete(oldest);
      return (await reading()) as T;
    },

    /** After an action everything is read anew. */
    renew(): void {
      readings = open();
    },
  };
}

/** How long each run will take: by its pace from one reading to the next. */
function createEstimates(requestsPerSecond: number) {
  const paces = new Map<number, ReturnType<typeof createPace>>();
  return ({ runs: { underWay }, now }: Situation): Map<number, number> => {
    for (const id of paces.keys()) if (!underWay.some(({ run }) => run.id === id)) paces.delete(id);
    const left = underWay.map(({ run, progress }): [number, number | undefined] => {
      const pace = paces.get(run.id) ?? createPace();
      paces.set(run.id, pace);
      const recordsPerSecond = pace(progress.done, performance.now());
      return [run.id, estimateSecondsLeft({ run, progress }, { requestsPerSecond, recordsPerSecond, now })];
    });
    return new Map(left.filter((pair): pair is [number, number] => pair[1] !== undefined));
  };
}
