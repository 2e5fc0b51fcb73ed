// What pages are made of: readings of the state, each kept for a moment, so that many open pages are no more load than one.
import { cacheReading } from '../http/cached-reading.js';
import { listCauses } from '../readings/causes.js';
import { readStatus, type StatusReading } from '../readings/status.js';
import { createTurns } from '../lifecycle.js';
import { createPace } from '../report/progress.js';
import type { QuotaUsage } from '../destination/quota/limiter.js';
import type { Queries, State } from '../state/database.js';
import type { Binding } from '../state/destination-binding.js';
import { readInTime } from '../state/read-in-time.js';
import { listRequestMinutes, readRequestTotals } from '../state/requests.js';
import { listEndedBadly } from '../state/runs/ended-badly.js';
import { LISTED_KINDS } from '../state/runs/read-runs.js';

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

/** An unfinished run, and when it will be done at its pace. */
export type RunUnderWay = StatusReading['unfinished'][number] & { secondsLeft: number | undefined };

export type Sources = ReturnType<typeof createSources>;

export function createSources({
  state,
  configuredStreams,
  quotaUsage,
  requestsPerSecond,
  longestStatementMs = LONGEST_STATEMENT_MS,
}: SourceDeps) {
  const paces = createPaces();
  const turns = createTurns();

  /** One reading at a time, so that whoever looks leaves a connection of the state for the work. */
  const cached = <T>(read: (db: Queries) => Promise<T>, keep = KEEP) =>
    cacheReading(async () => readInTime(await state(), longestStatementMs, read), {
      ...keep,
      inTurn: turns.take,
    });

  async function readNow(db: Queries) {
    const status = await readStatus({ db }, { kinds: LISTED_KINDS, configuredStreams, quotaUsage });
    const endedBadly = await listEndedBadly(db);
    return { ...status, endedBadly, unfinished: paces.apply(status.unfinished) };
  }

  async function readHour(db: Queries) {
    const now = new Date();
    const minutes = await listRequestMinutes(db, 60);
    return { minutes, totals: await readRequestTotals(db, new Date(now.getTime() - HOUR), now) };
  }

  /** Undefined: the configuration could not be read. */
  const configured = () => configuredStreams().catch(() => undefined);

  const open = () => ({
    now: cached(readNow),
    hour: cached(readHour, { ...KEEP, keepMs: 5 * SECOND }),
    causes: cached(async (db) => listCauses(db, {}, await configured()), { ...KEEP, keepMs: 3 * SECOND }),
    /** By the address of the page. */
    pages: new Map<string, () => Promise<unknown>>(),
  });
  let readings = open();

  return {
    requestsPerSecond,
    configured,
    now: () => readings.now(),
    hour: () => readings.hour(),
    causes: () => readings.causes(),

    /** What one page needs of the state, kept in the same way. */
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

/** How fast each run is, from one reading to the next; before there are two, since it started. */
function createPaces() {
  const paces = new Map<number, ReturnType<typeof createPace>>();
  return {
    apply(unfinished: StatusReading['unfinished']): RunUnderWay[] {
      const now = Date.now();
      for (const id of paces.keys()) if (!unfinished.some(({ run }) => run.id === id)) paces.delete(id);
      return unfinished.map(({ run, progress }) => {
        const pace = paces.get(run.id) ?? createPace();
        paces.set(run.id, pace);
        const lately = pace(progress.done, performance.now());
        const seconds = run.startedAt ? (now - run.startedAt.getTime()) / SECOND : 0;
        const perSecond = lately > 0 ? lately : seconds > 0 ? progress.done / seconds : 0;
        const isMoving = perSecond > 0 && !run.pausedAt && run.status === 'running';
        return {
          run,
          progress,
          secondsLeft: isMoving ? (progress.total - progress.done) / perSecond : undefined,
        };
      });
    },
  };
}
