// Sources of the pages: readings of the state, each kept for a moment, so that many open pages are no more load than one.
import { cacheReading } from '../http/cached-reading.js';
import { readFacts, readQuota, type Situation } from '../situation/situation.js';
import { estimateSecondsLeft } from '../situation/run-facts.js';
import { createTurns } from '../process/lifecycle.js';
import { createPace } from '../render/progress.js';
import type { QuotaUsage } from '../destination/quota/limiter.js';
import type { Queries, State } from '../state/database.js';
import type { Binding } from '../state/destination-binding.js';
import { readHistory } from '../situation/history.js';
import { inSnapshot } from '../state/snapshot.js';

const SECOND = 1000;
/** A reading takes at most a tenth of the time. */
const KEEP = { keepMs: SECOND, keepTimes: 9, withinMs: 5 * SECOND };
/** Pictures of hours and days change slowly. */
const HISTORY_MS = 10 * SECOND;
const LONGEST_STATEMENT_MS = 10 * SECOND;
const MOST_READINGS = 50;

export interface SourceDeps {
  state: () => Promise<State>;
  configuredStreams: () => Promise<string[]>;
  timeZone: () => Promise<string>;
  quotaUsage: (owner: Binding) => Promise<QuotaUsage>;
  requestsPerSecond: number;
  /** A reading is given up after a statement that takes longer. */
  longestStatementMs?: number;
}

export type Sources = ReturnType<typeof createSources>;

export function createSources({
  state,
  configuredStreams,
  timeZone,
  quotaUsage,
  requestsPerSecond,
  longestStatementMs = LONGEST_STATEMENT_MS,
}: SourceDeps) {
  const estimate = createEstimates(requestsPerSecond);
  const turns = createTurns();

  /** Readings that are kept, by the address of a page or by the name of what several pages show. */
  let kept = new Map<string, () => Promise<unknown>>();

  /** Reads the state in one snapshot, and keeps the reading for a moment. */
  async function read<T>(name: string, facts: (db: Queries) => Promise<T>, keepMs = KEEP.keepMs): Promise<T> {
    const begin = async () => inSnapshot((await state()).db, facts, { limitMs: longestStatementMs });
    // Only one reading at a time, so that readers leave a connection of the state for the work.
    const reading = kept.get(name) ?? cacheReading<unknown>(begin, { ...KEEP, keepMs, inTurn: turns.take });
    kept.delete(name);
    kept.set(name, reading); // the latest last
    const [oldest] = kept.keys();
    if (kept.size > MOST_READINGS && oldest !== undefined) kept.delete(oldest);
    return (await reading()) as T;
  }

  /** Undefined: the configuration could not be read. */
  const configured = () => configuredStreams().catch(() => undefined);

  /** The state, which may hold it, may not answer. */
  const zoneOfReaders = () => timeZone().catch(() => 'UTC');

  const readNow = () =>
    read('now', async (db) => {
      const facts = await readFacts(db, { streams: await configured() });
      return { ...facts, secondsLeft: estimate(facts), requestsPerSecond };
    });
  const quota = cacheReading(async () => readQuota((await readNow()).binding, quotaUsage), KEEP);

  return {
    requestsPerSecond,
    configured,
    timeZone: zoneOfReaders,
    read,
    now: async () => ({ ...(await readNow()), quota: await quota() }),

    history: async () => {
      const [{ now }, zone] = [await readNow(), await zoneOfReaders()];
      return read('history', (db) => readHistory(db, { now, timeZone: zone }), HISTORY_MS);
    },

    /** Forgets every reading, as an action makes it outdated. */
    renew(): void {
      kept = new Map();
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
