// The organization's mirror, only ever read: see read-only-sessions.ts. How values print as text is fixed, because the row
// hash is made of that text.
import { readDatabaseFacts } from '../connections/database-facts.js';
import type { SettingText } from '../config/setting-text.js';
import { messageOf, SlotsyncError } from '../errors/errors.js';
import { createTurns } from '../process/lifecycle.js';
import type { Row } from '../streams/config-schema.js';
import type { Stream } from '../streams/stream.js';
import { isIdentifiedByKey, renderExternalId } from '../streams/external-id.js';
import { isTooLong } from '../streams/local-key.js';
import { encodeColumn, escapeColumn, unescapeColumn } from '../connections/postgres-copy.js';
import { createKeyFinder, type SharedExternalId } from './find-keys.js';
import { askForLoad, type LoadReading } from './read-load.js';
import { createLookupReader } from './read-lookup.js';
import { createBookingReader } from './read-bookings.js';
import { createCatalogueReader } from './read-catalogue.js';
import { asMirrorError, isDataFault, isRowFault, isSourceFault, read } from './mirror-errors.js';
import { createCursorReader } from './read-by-cursor.js';
import { openReadOnlySessions } from './read-only-sessions.js';
import { SELECT_ROLE_RIGHTS, type RoleRights } from './role-rights.js';
import { SELECT_DATABASE_IDENTITY, type DatabaseIdentity } from '../connections/database-facts.js';
import {
  collect,
  createSourceReader,
  findMissingColumns,
  findSingleValues,
  findUnfitKeys,
  findUntimed,
  keyConditions,
  type NamedColumn,
} from './source-reader.js';
import * as sourceSql from './source-sql.js';
import { hashExpression, keyExpression, type Described, type Selection } from './source-sql.js';

/** Types whose values read the same as their text. */
const READS_AS_ITS_KEY = new Set(['text', 'character varying', 'smallint', 'integer', 'bigint', 'uuid']);

export interface MirrorRow {
  row: Row;
  /** 64 bits, as a decimal number in text. */
  hash: string;
}

/** How hashes are read, beside which. */
export interface HashOptions {
  /** External ids that several rows have. */
  shared?: readonly string[];
  /** Gets the load of the source. */
  noteLoad?: (load: LoadReading | undefined) => void;
}

export type { LoadReading, Selection, SharedExternalId };
export type Mirror = ReturnType<typeof createMirror>;

/**
 * Opens the mirror. Nothing connects before the first reading. Errors are SlotsyncError `mirror_…`. `statementSeconds`:
 * the longest that a statement may take.
 */
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

  /** `(key, row hash)` of what is selected: see `readHashes`. */
  function copyHashes(stream: Stream, selection: Selection, { shared, noteLoad }: HashOptions) {
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

  /** The same of the keys alone: a column may hold others that are equal to one of them by its type or its collation. */
  async function readHashesOf(stream: Stream, selection: Selection, options: HashOptions) {
    const wanted = new Set(selection.keys?.map(encodeColumn));
    const lines = await collect(copyHashes(stream, selection, options));
    return lines.filter((line) => wanted.has(orderOfLine(line)));
  }

  async function readPart(
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

  async function isEmpty({ source }: Stream): Promise<boolean> {
    const rows = await read(() =>
      sessions.query(`SELECT 1 FROM ${sourceSql.relation(source)} LIMIT 1`, source),
    );
    return rows.length === 0;
  }

  return {
    /**
     * Runs `work` when no other work of this process has the turn. A reading in blocks keeps one of the few connections
     * until it ends, so it takes the turn first. Do not wait for the turn while holding a connection of the state: the
     * work that has the turn may wait for that connection.
     */
    takeTurn: turns.take,

    /** The catalogue: tables, columns, keys. */
    catalogue: createCatalogueReader(sessions),

    /** Readings of bookings, for reconciling. */
    bookings: createBookingReader(reader, keyFinder),

    /** Version and database, when the mirror can be read. */
    async ping(): Promise<{ version: string; database: string }> {
      const [row] = await read(() =>
        sessions.ofCatalogue<{ version: string; database: string }>(
          `SELECT current_setting('server_version') AS version, current_database() AS database`,
        ),
      );
      return row ?? { version: '', database: '' };
    },

    /** Rights of the role beside reading. */
    async roleRights(): Promise<RoleRights> {
      const [row] = await read(() => sessions.ofCatalogue<RoleRights>(SELECT_ROLE_RIGHTS));
      return row ?? { role: '', powers: [], writable: [], writableCount: 0 };
    },

    /** The identity of this database, to be compared with another connection's. */
    databaseIdentity: async () =>
      (await read(() => sessions.ofCatalogue<DatabaseIdentity>(SELECT_DATABASE_IDENTITY)))[0],

    /** The facts by which this database can be recognized later. */
    facts: () => read(() => sessions.together(readDatabaseFacts)),

    /** Faults of a stream's source; empty when every column that the stream names is in it. */
    async checkStream(stream: Stream): Promise<string[]> {
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
    },

    /**
     * `(key, row hash)` of the whole source, or of what is selected of it, in one snapshot and ordered by the key's
     * bytes: blocks of COPY lines, latin1. Behind the hash of a row that has one of the `shared` external ids stands
     * `:shared:` and that id's place in the list. Call it within `takeTurn`, unless there are `keys`: those are read before
     * the first block. Of selected keys, those whose row cannot be read, while the source can, have the hash 0,
     * which is that of no row. `noteLoad` gets the load of the source before the first block; reading it is part of the same
     * transaction, so the rows are not older than what it says.
     */
    async *readHashes(
      stream: Stream,
      selection: Selection = {},
      options: HashOptions = {},
    ): AsyncGenerator<string[]> {
      if (!selection.keys) return yield* copyHashes(stream, selection, options);
      try {
        yield await readHashesOf(stream, selection, options);
      } catch (error) {
        if (!isRowFault(error)) throw error;
        const keys = [...new Set(selection.keys)];
        const { rows, unreadable } = await readApart(keys, async (part) => {
          const lines = await readHashesOf(stream, { ...selection, keys: part }, options);
          const byKey = new Map<string, string[]>();
          for (const line of lines)
            byKey.set(orderOfLine(line), [...(byKey.get(orderOfLine(line)) ?? []), line]);
          return byKey;
        });
        // A source that cannot be read at all is thrown: that is no fault of these rows.
        if (unreadable.size === keys.length) await isEmpty(stream);
        for (const key of unreadable.keys()) {
          const order = encodeColumn(key);
          rows.set(order, [`${escapeColumn(order)}\t0`]);
        }
        yield [...rows].toSorted(([a], [b]) => (a < b ? -1 : 1)).flatMap(([, lines]) => lines);
      }
    },

    /** The load of a stream's source; undefined: the configuration does not ask for it. */
    readLoad: (stream: Stream): Promise<LoadReading | undefined> =>
      read(() => sessions.ask(stream.source, (ask) => askForLoad(stream, ask))),

    /** Whether the source has no row. */
    isEmpty,

    /**
     * Why rows cannot be selected so, in PostgreSQL's words; undefined when they can. The server parses a statement and
     * executes nothing.
     */
    async checkCondition(stream: Stream, selection: Selection): Promise<string | undefined> {
      try {
        for (const statement of sourceSql.tryConditions(stream, selection)) {
          const { types: parameters } = await sessions.describe(statement, stream.source);
          if (parameters.length > 0) return sourceSql.NO_PARAMETERS;
        }
        return undefined;
      } catch (error) {
        const isWrong = isDataFault(error) || isSourceFault(asMirrorError(error));
        if (!isWrong) throw asMirrorError(error);
        return messageOf(error).replace(/\s+/g, ' ');
      }
    },

    /**
     * The rows of these keys as they are now; a key whose row is gone is not in the answer. One row that cannot be read must
     * not stop the others: those keys are answered apart, with the reason. Throws what concerns all of them.
     */
    async readRows(stream: Stream, keys: readonly string[]): Promise<ReadApart<MirrorRow>> {
      const found = await readApart([...new Set(keys)], (part) => readPart(stream, part));
      const rows = new Map<string, MirrorRow>();
      const unreadable = new Map(found.unreadable);
      for (const [key, row] of found.rows)
        if (row instanceof SlotsyncError) unreadable.set(key, row);
        else rows.set(key, row);
      return { rows, unreadable };
    },

    /** Keys of some rows, as many as wanted where there are so many. */
    async listSomeKeys(declared: Stream, count: number): Promise<string[]> {
      const rows = reader.select<Stream, { key: string }>(declared, (described) => [
        `SELECT ${keyExpression(described)} AS key FROM ${sourceSql.relation(declared.source)} LIMIT ${count}`,
      ]);
      return (await collect(rows)).flatMap(({ key }) => key ?? []);
    },

    /** External ids by key, where template and key give them without the row; otherwise none. */
    async readExternalIdsOfKeys(stream: Stream, keys: readonly string[]): Promise<Map<string, string>> {
      if (!isIdentifiedByKey(stream.key, stream.externalId)) return new Map();
      const [column = ''] = stream.key;
      const { types } = await reader.describedAs(stream);
      if (!READS_AS_ITS_KEY.has(types.get(column) ?? '')) return new Map();
      const named = keys.filter((key) => key !== '');
      const ids = named.map((key) => [key, renderExternalId(stream.externalId, { [column]: key })] as const);
      return new Map(ids.filter(([, externalId]) => !isTooLong(externalId)));
    },

    // Lookups that are tables.
    ...createLookupReader(sessions, reader),

    // Reads the rows that a poll looks at.
    ...createCursorReader(sessions, reader),

    // Finds the rows that have an external id now, and those that refer to a record.
    findKeysByExternalId: keyFinder.findKeysByExternalId,
    findReferrers: keyFinder.findReferrers,

    /** External ids that several rows would give. Reads the whole source, unless the template rules it out. */
    findSharedExternalIds: (stream: Stream) => keyFinder.findShared(`streams.${stream.name}`, stream),

    close: sessions.close,
  };
}

/** `hash`: of the row, by which a later run sees whether it has changed. */
function tooLarge({ rowLimitMegabytes }: Stream, bytes: number, hash: string): SlotsyncError {
  const size = `${Math.ceil(bytes / 1024 / 1024)} MB, and at most ${rowLimitMegabytes} MB are read`;
  return new SlotsyncError('row_too_large', `its row has ${size}`, { facts: { bytes, hash } });
}

/** The key of a line, by which a reading is ordered. */
const orderOfLine = (line: string) => unescapeColumn(line.split('\t', 1)[0] ?? '');

// A row that cannot be read, because its view raises an error or its function takes too long, fails the statement that
// reads it among others. Such a reading is halved until the row stands alone.

/** So many keys that cannot be read, before any that can: then it is the source, not a row. */
const MOST_ALONE = 8;

export interface ReadApart<R> {
  rows: Map<string, R>;
  /** Keys whose row cannot be read, with the reason. Whether there is such a row is not known. */
  unreadable: Map<string, SlotsyncError>;
}

/** Reads all keys; throws what concerns the connection or the source, and not single rows. */
async function readApart<R>(
  keys: readonly string[],
  read: (keys: readonly string[]) => Promise<ReadonlyMap<string, R>>,
): Promise<ReadApart<R>> {
  const result: ReadApart<R> = { rows: new Map(), unreadable: new Map() };
  let isReadable = false;
  const parts: (readonly string[])[] = [keys];
  for (let part = parts.pop(); part; part = parts.pop()) {
    try {
      for (const [key, row] of await read(part)) result.rows.set(key, row);
      isReadable = true;
    } catch (error) {
      const [only, more] = part;
      if (!isRowFault(error) || only === undefined) throw error;
      if (more === undefined) {
        result.unreadable.set(only, error);
        if (!isReadable && result.unreadable.size > MOST_ALONE) throw error;
      } else {
        const middle = Math.ceil(part.length / 2);
        parts.push(part.slice(middle), part.slice(0, middle));
      }
    }
  }
  return result;
}
