// A source whose rows cannot be found by an index, or that PostgreSQL cannot narrow to some keys, is read whole for each
// batch. Neither the declaration nor the statement shows that, so the readings of batches are timed, and one that took long
// is explained with the plan that PostgreSQL makes for it.
import { read } from './mirror-errors.js';
import type { ReadOnlySessions } from './read-only-sessions.js';

/** Milliseconds from which on the reading of a batch is slow. With an index, a thousand rows take some milliseconds. */
const SLOW_MS = 2000;

/** A statement that took long. Texts in it and in its plan are replaced: they may be keys. */
export interface SlowReading {
  seconds: number;
  /** Keys of the whole reading. */
  keys: number;
  statement: string;
  /** As `EXPLAIN` prints it; empty when the server made none. */
  plan: string;
}

/** Finds the slowest statement of each reading by keys. */
export function createReadingTimer(sessions: Pick<ReadOnlySessions, 'query'>, slowMs = SLOW_MS) {
  /** The rows are read already: that there is no plan must not fail them. */
  const explain = (statement: string) =>
    read(() =>
      sessions.query<{ 'QUERY PLAN': string }>(`EXPLAIN ${statement}`, { rowSecurity: 'filtered' }),
    ).then(
      (lines) => lines.map((line) => line['QUERY PLAN']).join('\n'),
      () => '',
    );

  return {
    start() {
      let slowest = { statement: '', ms: 0 };
      return {
        /** A statement of the reading has ended. */
        ended(statement: string, ms: number): void {
          if (ms > slowest.ms) slowest = { statement, ms };
        },

        /** The slowest of its statements; undefined: none was slow. */
        async explainSlowest(keys: number): Promise<SlowReading | undefined> {
          const { statement, ms } = slowest;
          if (ms < slowMs || statement === '') return undefined;
          return {
            seconds: Math.round(ms / 100) / 10,
            keys,
            statement: withoutTexts(statement).replace(/\s+/g, ' '),
            plan: withoutTexts(await explain(statement)),
          };
        },
      };
    },
  };
}

/** SQL or a plan without the texts in it: in both, a quote within a text is doubled. */
const withoutTexts = (sql: string) => sql.replace(/'(?:[^']|'')*'/g, "'…'");
