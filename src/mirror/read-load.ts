// When the mirror was loaded last, as the configuration says to ask. Whatever is not one time is answered as such: no reading
// fails for it, and what follows is decided by the plan.
import postgres from 'postgres';
import { messageOf } from '../errors/errors.js';
import { plural } from '../text/format.js';
import type { Stream } from '../streams/stream.js';
import { asMirrorError } from './mirror-errors.js';
import type { Ask } from './read-only-sessions.js';
import { column } from './row-key-and-hash.js';
import { relation } from './source-sql.js';

/** When the mirror was loaded, or why that cannot be said. */
export type LoadReading = { at: Date } | { fault: string };

/** Types that are a time: date, timestamp, timestamptz. Without a zone it is read as UTC, which the session has. */
const TIMES: Readonly<Record<number, (text: string) => string>> = {
  1082: (text) => `${text}T00:00:00Z`,
  1114: (text) => `${text.replace(' ', 'T')}Z`,
  1184: (text) => text.replace(' ', 'T').replace(/\+00$/, 'Z'),
};

/** Undefined: nothing is to be asked. Throws what ends the connection. */
export async function askForLoad({ freshness, source }: Stream, ask: Ask): Promise<LoadReading | undefined> {
  if (!freshness) return undefined;
  const asked =
    freshness.column === undefined
      ? `SELECT * FROM ${relation({ query: freshness.query ?? '' })} LIMIT 2`
      : `SELECT max(${column(freshness.column)}) AS loaded FROM ${relation(source)}`;
  try {
    return readTime(await ask(asked), freshness.column === undefined);
  } catch (error) {
    if (!(error instanceof postgres.PostgresError)) throw error;
    return { fault: `it failed: ${messageOf(asMirrorError(error))}` };
  }
}

function readTime(rows: postgres.RowList<postgres.Row[]>, isQuery: boolean): LoadReading {
  const [first, ...others] = rows.columns;
  if (!first) return { fault: 'it returns no column; it must return one time' };
  if (others.length > 0)
    return { fault: `it returns ${plural(rows.columns.length, 'column')}; it must return one time` };
  const toIso = TIMES[first.type];
  if (!toIso) return { fault: `${first.name} is no time: it must be a date, timestamp or timestamptz` };
  if (rows.length > 1) return { fault: 'it returns several rows; it must return one time: use max()' };
  const [row] = rows;
  const text = row?.[first.name] as string | null | undefined;
  if (text === undefined || text === null)
    return { fault: isQuery ? 'it returns nothing: no load is noted there' : 'no row has a time there' };
  const at = new Date(toIso(text));
  return Number.isNaN(at.getTime()) ? { fault: `'${text}' is no point in time` } : { at };
}
