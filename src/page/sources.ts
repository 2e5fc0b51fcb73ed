// Reads the facts of pages from the state and caches them, so that many open pages cause no more load than one.
import { cacheReading } from '../http/cached-reading.js';
import { readFacts, readQuota, type Situation } from '../situation/situation.js';
import { estimateSecondsLeft } from '../situation/run-facts.js';
import { createTurns } from '../process/lifecycle.js';
import { createPace } from '../render/progress.js';
import type { QuotaUsage } from '../destination/quota/limiter.js';
import { type Queries, type State, inSnapshot } from '../state/database.js';
import type { Binding } from '../state/destination-binding.js';
import { readHistory } from '../situation/history.js';

const SECOND = 1000;
/** Caches facts nine times as long as their query took, so that queries take at most a tenth of the time. */
const KEEP = { keepMs: SECOND, keepTimes: 9, withinMs: 5 * SECOND };
/** Facts of graphs are cached longer, because graphs of hours and days change slowly. */
const HISTORY_MS = 10 * SECOND;
const LONGEST_STATEMENT_MS = 10 * SECOND;
const MOST_READINGS = 50;

export interface SourceDeps {
  state: () => Promise<State>;
  configuredStreams: () => Promise<string[]>;
  timeZone: () => Promise<string>;
  quotaUsage: (owner: Binding) => Promise<QuotaUsage>;
  requestsPerSecond: number;
  /** Time limit of each statement in milliseconds. A slower statement is aborted. */
  longestStatementMs?: number;
}

export type Sources = ReturnType<typeof createSources>;

export function createSources(deps: SourceDeps) {
  const { state, configuredStreams, timeZone, quotaUsage, requestsPerSecond } = deps;
  const { longestStatementMs = LONGEST_STATEMENT_MS } = deps;
  const estimate = createEstimates(requestsPerSecond);
  const turns = createTurns();

  /** Cached facts, by address of the page, or by a name if several pages show them. */
  let kept = new Map<string, () => Promise<unknown>>();

  async function read<T>(name: string, facts: (db: Queries) => Promise<T>, keepMs = KEEP.keepMs): Promise<T> {
    const begin = async () => inSnapshot((await state()).db, facts, { limitMs: longestStatementMs });
    // Queries run one at a time, so that connections to the state stay free for the worker.
    const reading = kept.get(name) ?? cacheReading<unknown>(begin, { ...KEEP, keepMs, inTurn: turns.take });
    kept.delete(name);
    kept.set(name, reading); // the latest last
    const [oldest] = kept.keys();
    if (kept.size > MOST_READINGS && oldest !== undefined) kept.delete(oldest);
    return (await reading()) as T;
  }

  const configured = () => configuredStreams().catch(() => undefined);

  const readNow = () =>
    read('now', async (db) => {
      const facts = await readFacts(db, { streams: await configured() });
      return { ...facts, secondsLeft: estimate(facts), requestsPerSecond };
    });
  const quota = cacheReading(async () => readQuota((await readNow()).binding, quotaUsage), KEEP);

  return {
    requestsPerSecond,
    configured,
    timeZone,
    read,
    now: async () => ({ ...(await readNow()), quota: await quota() }),

    history: async () => {
      const [{ now }, zone] = [await readNow(), await timeZone()];
      return read('history', (db) => readHistory(db, { now, timeZone: zone }), HISTORY_MS);
    },

    /** Empties the cache. Called after an action, which makes all facts outdated. */
    renew(): void {
      kept = new Map();
    },
  };
}

/** Estimates the seconds left of each run, from its speed between two reads. */
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
