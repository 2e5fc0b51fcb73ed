// Reads the organization's mirror and never writes to it (read-only-sessions.ts). The text format of values is fixed,
// because row hashes are made of that text.
import * as sourceSql from './source-sql.js';
import postgres from 'postgres';
import {
  readDatabaseFacts,
  SELECT_DATABASE_IDENTITY,
  type DatabaseIdentity,
} from '../connections/database-facts.js';
import type { SettingText } from '../config/setting-text.js';
import { messageOf, SlotsyncError, UsageError } from '../errors/errors.js';
import { tryInHalves } from '../errors/try-in-halves.js';
import type { BookingSource } from '../streams/bookings.js';
import { createTurns } from '../process/lifecycle.js';
import type { Row } from '../streams/config-schema.js';
import type { LookupTable } from '../streams/lookups.js';
import type { Stream } from '../streams/stream.js';
import { isIdentifiedByKey, renderExternalId } from '../streams/external-id.js';
import { isTooLong } from '../streams/local-key.js';
import { encodeColumn, escapeColumn, unescapeColumn } from '../connections/postgres-copy.js';
import { createKeyFinder, type SharedExternalId } from './find-keys.js';
import { readLookup } from './read-lookup.js';
import { createBookingReader } from './read-bookings.js';
import { createCatalogueReader } from './read-catalogue.js';
import { asMirrorError, isDataFault, isRowFault, isSourceFault, read } from './mirror-errors.js';
import { createCursorReader } from './read-by-cursor.js';
import { openReadOnlySessions, type Ask } from './read-only-sessions.js';
import { SELECT_ROLE_RIGHTS, type RoleRights } from './role-rights.js';
import {
  collect,
  createSourceReader,
  findMissingColumns,
  findSingleValues,
  findUnfitKeys,
  findUntimed,
  keyConditions,
  type NamedColumn,
  type SourceReader,
} from './source-reader.js';
import {
  hashExpression,
  keyExpression,
  type Described,
  type Selection,
  column,
  relation,
} from './source-sql.js';
import { plural } from '../text/format.js';

/** Types of a key column whose local key is the same text as the value that the external id contains. */
const READS_AS_ITS_KEY = new Set(['text', 'character varying', 'smallint', 'integer', 'bigint', 'uuid']);

export interface MirrorRow {
  row: Row;
  /** 64-bit hash of the row, as a decimal number in text. */
  hash: string;
}

export interface HashOptions {
  /** External ids that several rows have. Rows with these external ids are marked in the result. */
  shared?: readonly string[];
  /** Called with the load of the source, before the first row is read. */
  noteLoad?: (load: LoadReading | undefined) => void;
}

export type { Selection, SharedExternalId };
export type Mirror = ReturnType<typeof createMirror>;

/** Opens the mirror; the first query connects. Methods throw SlotsyncError `mirror_…`. */
export function createMirror({
  url,
  statementSeconds,
}: {
  url: SettingText;
  statementSeconds?: number | undefined;
}) {
  const sessions = openReadOnlySessions(url, statementSeconds);
  const reader = createSourceReader(sessions);
  const keyFinder = createKeyFinder(reader);
  const turns = createTurns();
  const bookings = createBookingReader(reader, keyFinder);

  async function isEmpty({ source }: Stream): Promise<boolean> {
    const rows = await read(() =>
      sessions.query(`SELECT 1 FROM ${sourceSql.relation(source)} LIMIT 1`, source),
    );
    return rows.length === 0;
  }

  return {
    /**
     * Runs `work` when no other work of this process has the turn. A query in blocks takes the turn first, because it
     * keeps one of the few connections until it ends. Do not wait for the turn while holding a connection of the state:
     * the work that has the turn may wait for that connection.
     */
    takeTurn: turns.take,

    catalogue: createCatalogueReader(sessions),

    bookings,

    /** Returns the server's version and the database's name. Throws if the mirror cannot be read. */
    async ping(): Promise<{ version: string; database: string }> {
      const [row] = await read(() =>
        sessions.ofCatalogue<{ version: string; database: string }>(
          `SELECT current_setting('server_version') AS version, current_database() AS database`,
        ),
      );
      return row ?? { version: '', database: '' };
    },

    async roleRights(): Promise<RoleRights> {
      const [row] = await read(() => sessions.ofCatalogue<RoleRights>(SELECT_ROLE_RIGHTS));
      return row ?? { role: '', powers: [], writable: [], writableCount: 0 };
    },

    /** Returns the identity of the mirror's database, for comparison with another connection's database. */
    databaseIdentity: async () =>
      (await read(() => sessions.ofCatalogue<DatabaseIdentity>(SELECT_DATABASE_IDENTITY)))[0],

    /** Returns the facts by which a later run recognizes this database. */
    facts: () => read(() => sessions.together(readDatabaseFacts)),

    checkStream: (stream: Stream) => findFaults(reader, stream),

    /**
     * Yields `(key, row hash)` of the selected rows as blocks of COPY lines in latin1, ordered by the bytes of the key,
     * from one snapshot. If `shared` contains the row's external id, the hash is followed by `:shared:` and the id's
     * position in the list. `noteLoad` is called before the first block with the load of the source. The load is read
     * in the same transaction, so the rows are at least as recent as the load.
     *
     * Call this function within `takeTurn`, unless the selection has `keys`: these are read before the first block. A
     * selected key whose row cannot be read has the hash 0, which no row has.
     */
    async *readHashes(
      stream: Stream,
      selection: Selection = {},
      options: HashOptions = {},
    ): AsyncGenerator<string[]> {
      if (!selection.keys) return yield* copyHashes(reader, stream, selection, options);
      try {
        yield await readHashesOf(reader, stream, selection, options);
      } catch (error) {
        if (!isRowFault(error)) throw error;
        const keys = [...new Set(selection.keys)];
        const { rows, unreadable } = await readApart(keys, async (part) => {
          const lines = await readHashesOf(reader, stream, { ...selection, keys: part }, options);
          const byKey = new Map<string, string[]>();
          for (const line of lines)
            byKey.set(orderOfLine(line), [...(byKey.get(orderOfLine(line)) ?? []), line]);
          return byKey;
        });
        // Throws if the whole source cannot be read. Then no single row is at fault.
        if (unreadable.size === keys.length) await isEmpty(stream);
        for (const key of unreadable.keys()) {
          const order = encodeColumn(key);
          rows.set(order, [`${escapeColumn(order)}\t0`]);
        }
        yield [...rows].toSorted(([a], [b]) => (a < b ? -1 : 1)).flatMap(([, lines]) => lines);
      }
    },

    /** Returns the load of a stream's source, or undefined if the configuration has no `freshness`. */
    readLoad: (stream: Stream): Promise<LoadReading | undefined> =>
      read(() => sessions.ask(stream.source, (ask) => askForLoad(stream, ask))),

    isEmpty,

    /** Returns PostgreSQL's reason why a selection is invalid, or undefined. The server only parses the statements. */
    async checkCondition(stream: Stream, selection: Selection): Promise<string | undefined> {
      try {
        for (const statement of sourceSql.tryConditions(stream, selection)) {
          if ((await sessions.parametersOf(statement, stream.source)).length > 0)
            return sourceSql.NO_PARAMETERS;
        }
        return undefined;
      } catch (error) {
        const isWrong = isDataFault(error) || isSourceFault(asMirrorError(error));
        if (!isWrong) throw asMirrorError(error);
        return messageOf(error).replace(/\s+/g, ' ');
      }
    },

    /**
     * Returns the present rows of these keys. Keys of deleted rows are missing. If a single row cannot be read, its key
     * is returned in `unreadable` with the reason, so that it does not stop the other rows. Throws errors that concern
     * all rows.
     */
    readRows: (stream: Stream, keys: readonly string[]): Promise<ReadApart<MirrorRow>> =>
      readApart([...new Set(keys)], (part) => readPart(reader, stream, part)),

    /** Throws a UsageError with every fault of every source: what is missing, or what the role may not read. */
    async requireSources(streams: readonly Stream[], reserved?: BookingSource): Promise<void> {
      const checks = streams.map(async (stream) =>
        (await findFaults(reader, stream)).map((fault) => `streams.${stream.name}: ${fault}`),
      );
      const ofStreams = await Promise.all(checks);
      const ofBookings = reserved ? await bookings.check(reserved) : [];
      const faults = [...ofStreams.flat(), ...ofBookings.map((fault) => `reservations.${fault}`)];
      if (faults.length === 0) return;
      throw new UsageError('the mirror lacks what the configuration names', {
        faults,
        remedy: 'Correct the configuration, or grant the missing rights. slotsync check shows all faults.',
      });
    },

    async listSomeKeys(declared: Stream, count: number): Promise<string[]> {
      const rows = reader.select<Stream, { key: string }>(declared, (described) => [
        `SELECT ${keyExpression(described)} AS key FROM ${sourceSql.relation(declared.source)} LIMIT ${count}`,
      ]);
      return (await collect(rows)).flatMap(({ key }) => key ?? []);
    },

    /** Returns external ids by key without reading rows. Empty unless an external id follows from the key alone. */
    async readExternalIdsOfKeys(stream: Stream, keys: readonly string[]): Promise<Map<string, string>> {
      if (!isIdentifiedByKey(stream.key, stream.externalId)) return new Map();
      const [column = ''] = stream.key;
      const { types } = await reader.describedAs(stream);
      if (!READS_AS_ITS_KEY.has(types.get(column) ?? '')) return new Map();
      const named = keys.filter((key) => key !== '');
      const ids = named.map((key) => [key, renderExternalId(stream.externalId, { [column]: key })] as const);
      return new Map(ids.filter(([, externalId]) => !isTooLong(externalId)));
    },

    /** Returns the content of a lookup. Throws SlotsyncError `mirror_source` with the place in the configuration. */
    readLookup: (name: string, lookup: LookupTable) => readLookup(sessions, reader, name, lookup),

    ...createCursorReader(sessions, reader),

    findKeysByExternalId: keyFinder.findKeysByExternalId,
    findReferrers: keyFinder.findReferrers,

    /** Returns external ids that several rows have. Reads the whole source, unless the template rules them out. */
    findSharedExternalIds: (stream: Stream) => keyFinder.findShared(`streams.${stream.name}`, stream),

    close: sessions.close,
  };
}

function copyHashes(
  reader: SourceReader,
  stream: Stream,
  selection: Selection,
  { shared, noteLoad }: HashOptions,
) {
  const statementsFor = (described: Described<Stream>) => {
    const [fault] = findUnfitKeys(stream.key, described.types);
    if (fault !== undefined) throw new SlotsyncError('mirror_source', `streams.${stream.name}.${fault}`);
    const keys = selection.keys ? keyConditions(described, selection.keys) : [undefined];
    return keys.map((condition) =>
      sourceSql.selectHashes(described, sourceSql.selectCondition(stream, selection, condition), shared),
    );
  };
  return reader.copy(stream, statementsFor, async (ask) => noteLoad?.(await askForLoad(stream, ask)));
}

/** Returns the lines of the selected keys only. The query may return keys that only the type considers equal. */
async function readHashesOf(
  reader: SourceReader,
  stream: Stream,
  selection: Selection,
  options: HashOptions,
) {
  const wanted = new Set(selection.keys?.map(encodeColumn));
  const lines = await collect(copyHashes(reader, stream, selection, options));
  return lines.filter((line) => wanted.has(orderOfLine(line)));
}

async function readPart(
  reader: SourceReader,
  stream: Stream,
  keys: readonly string[],
): Promise<Map<string, MirrorRow | SlotsyncError>> {
  const found = new Map<string, MirrorRow | SlotsyncError>();
  const wanted = new Set(keys);
  const rows = await reader.readRows(
    stream,
    (described) => ({ hash: `${hashExpression(described)}::text` }),
    (described) => keyConditions(described, keys),
  );
  for (const { key, row, computed, bytes } of rows) {
    if (key === null || !wanted.has(key)) continue;
    const hash = String(computed['hash']);
    found.set(key, bytes === undefined ? { row, hash } : tooLarge(stream, bytes, hash));
  }
  return found;
}

/** Returns the faults of a stream's source. The list is empty if the source has all columns that are named. */
async function findFaults(reader: SourceReader, stream: Stream): Promise<string[]> {
  const { graceDays } = stream;
  const others: readonly NamedColumn[] = [
    ...stream.references.flatMap(({ fieldId, key }) =>
      key.map((column) => [`references['${fieldId}']`, column] as const),
    ),
    ...(stream.cursor === undefined ? [] : [['cursor', stream.cursor] as const]),
    ...(stream.freshness?.column === undefined
      ? []
      : [['freshness.column', stream.freshness.column] as const]),
    ...(typeof graceDays === 'object' ? [['graceDays.column', graceDays.column] as const] : []),
  ];
  const { fault } = stream.lookups;
  if (fault && !isSourceFault(fault)) throw fault;
  const faults = await reader.check(stream, (types) => [
    ...findMissingColumns(stream, others, types),
    ...findSingleValues(stream, types),
    ...findUntimed(stream, types),
  ]);
  return fault ? [...faults, messageOf(fault)] : faults;
}

/** Returns the error for a row that is too large. The row's hash shows a later run whether the row has changed. */
function tooLarge({ rowLimitMegabytes }: Stream, bytes: number, hash: string): SlotsyncError {
  const size = `${Math.ceil(bytes / 1024 / 1024)} MB, more than the limit of ${rowLimitMegabytes} MB`;
  return new SlotsyncError('row_too_large', `the row has ${size}`, { facts: { bytes, hash } });
}

/** Returns the key of a COPY line, by which the lines are ordered. */
const orderOfLine = (line: string) => unescapeColumn(line.split('\t', 1)[0] ?? '');

// A row that cannot be read fails the whole statement, for example because its view raises an error or its function
// takes too long. Then the keys of the statement are halved until the row is alone.

/** Maximum number of unreadable keys before the first readable key. Beyond it, the source is at fault, not a row. */
const MOST_ALONE = 8;

export interface ReadApart<R> {
  rows: Map<string, R>;
  /** Keys whose row cannot be read, with the reason. Such a row may not exist at all. */
  unreadable: Map<string, SlotsyncError>;
}

/** Reads all keys and separates those whose row cannot be read. Throws errors of the connection or of the source. */
async function readApart<R>(
  keys: readonly string[],
  read: (keys: readonly string[]) => Promise<ReadonlyMap<string, R | SlotsyncError>>,
): Promise<ReadApart<R>> {
  const result: ReadApart<R> = { rows: new Map(), unreadable: new Map() };
  let isReadable = false;
  await tryInHalves(keys, async (part) => {
    try {
      for (const [key, row] of await read(part))
        if (row instanceof SlotsyncError) result.unreadable.set(key, row);
        else result.rows.set(key, row);
      isReadable = true;
      return [];
    } catch (error) {
      const [only, more] = part;
      if (!isRowFault(error) || only === undefined) throw error;
      if (more === undefined) result.unreadable.set(only, error);
      if (!isReadable && result.unreadable.size > MOST_ALONE) throw error;
      return part;
    }
  });
  return result;
}

/**
 * Time of the mirror's last load, by the query or column that the configuration names. An answer that is not exactly
 * one time is a fault, not an error: the plan decides what follows.
 */
export type LoadReading = { at: Date } | { fault: string };

/** Converters to ISO text, by type number (OID): date, timestamp, timestamptz. A time without a zone is UTC. */
const TIMES: Readonly<Record<number, (text: string) => string>> = {
  1082: (text) => `${text}T00:00:00Z`,
  1114: (text) => `${text.replace(' ', 'T')}Z`,
  1184: (text) => text.replace(' ', 'T').replace(/\+00$/, 'Z'),
};

/** Returns the load of a source, or undefined without `freshness`. Throws only errors that end the connection. */
async function askForLoad({ freshness, source }: Stream, ask: Ask): Promise<LoadReading | undefined> {
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
  if (!toIso) return fault('no time; it must return a date, timestamp or timestamptz');
  if (rows.length > 1) return fault('several rows; it must return one time: use max()');
  const [row] = rows;
  const text = row?.[first.name] as string | null | undefined;
  if (text === undefined || text === null) return fault('nothing: no load time is recorded');
  const at = new Date(toIso(text));
  return Number.isNaN(at.getTime()) ? fault(`'${text}', which is not a finite time`) : { at };
}
