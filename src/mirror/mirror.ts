// The organization's mirror, only ever read: see read-only-sessions.ts. How values print as text is fixed, because the row
// hash is made of that text.
import { hashExpression, keyExpression } from './row-key-and-hash.js';
import { readDatabaseFacts } from '../connections/database-facts.js';
import type { SettingText } from '../config/setting-text.js';
import { messageOf, SlotsyncError } from '../errors/errors.js';
import { createTurns } from '../process/lifecycle.js';
import type { Row } from '../streams/config-schema.js';
import type { Stream } from '../streams/stream.js';
import { isIdentifiedByKey, renderExternalId } from '../streams/external-id.js';
import { isTooLong } from '../streams/local-key.js';
import { decodeColumn, encodeColumn, escapeColumn, unescapeColumn } from '../connections/postgres-copy.js';
import { quoteLiteral } from '../text/sql-text.js';
import { createKeyFinder } from './find-keys.js';
import { askForLoad, type LoadReading } from './read-load.js';
import { createLookupReader } from './read-lookup.js';
import { createBookingReader } from './read-bookings.js';
import { createCatalogueReader } from './read-catalogue.js';
import { asMirrorError, isDataFault, isSourceFault, read } from './mirror-errors.js';
import { isRowFault, readApart, type ReadApart } from './read-apart.js';
import { openReadOnlySessions } from './read-only-sessions.js';
import { SELECT_ROLE_RIGHTS, type RoleRights } from './role-rights.js';
import { SELECT_DATABASE_IDENTITY, type DatabaseIdentity } from './session-formats.js';
import {
  collect,
  createSourceReader,
  findMissingColumns,
  findUnfitKeys,
  keyConditions,
  type NamedColumn,
  type SharedExternalId,
} from './source-reader.js';
import type { Described } from './source-columns.js';
import * as sourceSql from './source-sql.js';
import type { CursorRange, Selection } from './source-sql.js';

/** Types whose values read the same as their text. */
const READS_AS_ITS_KEY = new Set(['text', 'character varying', 'smallint', 'integer', 'bigint', 'uuid']);

export interface MirrorRow {
  row: Row;
  /** 64 bits, as a decimal number in text. */
  hash: string;
}

/** A row as polling reads it. */
export interface CursorRow {
  /** Text at full precision. */
  cursor: string;
  key: string;
  hash: string;
  /** Beyond the watermark, neither at nor before it. */
  isAhead: boolean;
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
  const turns = createTurns();
  const typeOf = async (stream: Stream, column = ''): Promise<string> =>
    (await reader.describedAs(stream)).types.get(column) ?? '';

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
    bookings: createBookingReader(reader),

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
      const others: readonly NamedColumn[] = [
        ...stream.references.flatMap(({ fieldId, key }) =>
          key.map((column) => [`references['${fieldId}']`, column] as const),
        ),
        ...(stream.cursor === undefined ? [] : [['cursor', stream.cursor] as const]),
        ...(stream.freshness?.column === undefined
          ? []
          : [['freshness.column', stream.freshness.column] as const]),
      ];
      const { fault } = stream.lookups;
      if (fault && !isSourceFault(fault)) throw fault;
      const faults = await reader.check(stream, (types) => findMissingColumns(stream, others, types));
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

    /**
     * Rows in the order of the stream's cursor, in one snapshot: from the watermark on, and what the overlap adds before
     * it. The reading ends when its consumer stops. Call it within `takeTurn`.
     */
    async *readByCursor(stream: Stream, range: CursorRange): AsyncGenerator<CursorRow[]> {
      const { cursor } = stream;
      if (cursor === undefined) return;
      const blocks = reader.copy(stream, (described) => [sourceSql.selectByCursor(described, cursor, range)]);
      for await (const lines of blocks) yield lines.map(toCursorRow);
    },

    /** The type of the stream's cursor. `isTime`: looking back by seconds has a meaning. */
    async cursorType(stream: Stream): Promise<{ type: string; isTime: boolean }> {
      const type = await typeOf(stream, stream.cursor);
      return { type, isTime: sourceSql.isTimeType(type) };
    },

    /** The source has a row whose cursor is the watermark or comes after it: otherwise its values went back. */
    async hasReached(stream: Stream, watermark: NonNullable<CursorRange['watermark']>): Promise<boolean> {
      const { cursor = '' } = stream;
      const rows = reader.select(stream, (described) => [
        sourceSql.findReached(described, cursor, watermark),
      ]);
      return (await collect(rows)).length > 0;
    },

    /** Number of rows that are never polled: the value of their cursor comes from no clock or sequence. */
    async countImpossible(stream: Stream): Promise<number> {
      const { cursor = '' } = stream;
      const rows = reader.select<Stream, { count: number }>(stream, (described) =>
        sourceSql.countImpossible(described, cursor),
      );
      return (await collect(rows))[0]?.count ?? 0;
    },

    /** Whether one value of the stream's cursor comes before another, as PostgreSQL orders them. */
    async isBefore(stream: Stream, value: string, other: string): Promise<boolean> {
      const type = await typeOf(stream, stream.cursor);
      const [one, two] = [value, other].map((text) => `${quoteLiteral(text)}::text::${type}`);
      const [row] = await read(() => sessions.query<{ is: boolean }>(`SELECT ${one} < ${two} AS is`));
      return row?.is ?? true;
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
      if (!READS_AS_ITS_KEY.has(await typeOf(stream, column))) return new Map();
      const named = keys.filter((key) => key !== '');
      const ids = named.map((key) => [key, renderExternalId(stream.externalId, { [column]: key })] as const);
      return new Map(ids.filter(([, externalId]) => !isTooLong(externalId)));
    },

    // Lookups that are tables.
    ...createLookupReader(sessions, reader),

    // Finds the rows that have an external id now, and those that refer to a record.
    ...createKeyFinder(reader),

    /** External ids that several rows would give. Reads the whole source, unless the template rules it out. */
    findSharedExternalIds: (stream: Stream) => reader.findSharedExternalIds(`streams.${stream.name}`, stream),

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

function toCursorRow(line: string): CursorRow {
  const [cursor = '', key = '', hash = '', isAhead] = line.split('\t');
  const text = (column: string) => decodeColumn(unescapeColumn(column));
  return { cursor: text(cursor), key: text(key), hash, isAhead: isAhead === 't' };
}
