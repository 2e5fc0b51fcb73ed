// Reads when the mirror was last loaded, by the query or column that the configuration names. An answer that is not
// exactly one time becomes a fault, not an error. The plan decides what follows from a fault.
import postgres from 'postgres';
import { messageOf } from '../errors/errors.js';
import { plural } from '../text/format.js';
import type { Stream } from '../streams/stream.js';
import { asMirrorError } from './mirror-errors.js';
import type { Ask } from './read-only-sessions.js';
import { column, relation } from './source-sql.js';

/** Time of the mirror's last load, or the reason why the time is not known. */
export type LoadReading = { at: Date } | { fault: string };

/** Converters to ISO text, by type number (OID): date, timestamp, timestamptz. A time without a zone is UTC. */
const TIMES: Readonly<Record<number, (text: string) => string>> = {
  1082: (text) => `${text}T00:00:00Z`,
  1114: (text) => `${text.replace(' ', 'T')}Z`,
  1184: (text) => text.replace(' ', 'T').replace(/\+00$/, 'Z'),
};

/** Returns the load of a source, or undefined without `freshness`. Throws only errors that end the connection. */
export async function askForLoad({ freshness, source }: Stream, ask: Ask): Promise<LoadReading | undefined> {
  if (!freshness) return undefined;
  const asked =
    freshness.column === undefined
      ? `SELECT * FROM ${relation({ query: freshness.query ?? '' })} LIMIT 2`
      : `SELECT max(${column(freshness.column)}) AS loaded FROM ${relation(source)}`;
  const asker = freshness.column === undefined ? 'the query' : `max(${freshness.column})`;
  try {
    return readTime(await ask(asked), asker);
  } catch (error) {
    if (!(error instanceof postgres.PostgresError)) throw error;
    return { fault: `${asker} failed: ${messageOf(asMirrorError(error))}` };
  }
}

function readTime(rows: postgres.RowList<postgres.Row[]>, asker: string): LoadReading {
  const [first, ...others] = rows.columns;
  const fault = (what: string) => ({ fault: `${asker} returns ${what}` });
  if (!first || others.length > 0)
    return fault(`${plural(rows.columns.length, 'column')}; it must return one time`);
  const toIso = TIMES[first.type];
  if (!toIso) return fault('no time: it must be a date, timestamp or timestamptz');
  if (rows.length > 1) return fault('several rows; it must return one time: use max()');
  const [row] = rows;
  const text = row?.[first.name] as string | null | undefined;
  if (text === undefined || text === null) return fault('nothing: no load is noted there');
  const at = new Date(toIso(text));
  return Number.isNaN(at.getTime()) ? fault(`'${text}', which is no point in time`) : { at };
}
