// The organization's mirror, only ever read: every session is read-only at the server, every reading is
// one transaction, and how values print as text is fixed, since the row hash is made of that text.
import postgres from 'postgres';
import { closest } from 'fastest-levenshtein';
import { messageOf, SlotsyncError } from '../errors.js';
import type { Row } from '../streams/config-schema.js';
import type { Source, Stream } from '../streams/stream.js';
import { renderExternalId, templateColumns } from '../streams/external-id.js';
import { decodeColumn, readCopy, unescapeColumn } from '../postgres-copy.js';
import { arrayLiteral } from '../sql-text.js';
import { createBookingReader } from './read-bookings.js';
import { asMirrorError, isDataFault, isSourceFault, read } from './mirror-errors.js';
import { readDatabaseIdentity, SESSION_FORMATS, type DatabaseIdentity } from './session-formats.js';
import * as sourceSql from './source-sql.js';
import type { CursorRange, Selection } from './source-sql.js';
import { DATES_AS_TEXT, FIXED_WIDTH, keyColumns, readArrays } from './column-values.js';

const SESSION = {
  application_name: 'slotsync mirror',
  default_transaction_read_only: true,
  ...SESSION_FORMATS,
};
/**
 * Rows are read by their keys, a hundred at a time: the index is what serves, on any disk of today. Not where whole
 * sources are read: there it would rule out sorting in parallel.
 */
const BY_KEYS = { random_page_cost: 1.1 };

/** One more than this many shared external ids are not a slip but a wrong template. */
const SHARED_ID_LIMIT = 1000;

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
  /** Beyond the watermark, not at or before it. */
  isAhead: boolean;
}

export interface SharedExternalId {
  externalId: string;
  keys: string[];
}

export type { Selection };
export type Mirror = ReturnType<typeof createMirror>;

/** Opens the mirror. Nothing connects before the first reading. Errors are SlotsyncError `mirror_…`. */
export function createMirror({ url }: { url: string }) {
  const open = (max: number, settings = {}) =>
    postgres(url, {
      max,
      connect_timeout: 10,
      idle_timeout: 60,
      connection: { ...SESSION, ...settings },
      types: { date: DATES_AS_TEXT, fixedWidth: FIXED_WIDTH },
      // The driver's own reading of arrays takes a null for the text NULL.
      fetch_types: false,
      onnotice: () => undefined,
    });
  const sql = open(4, BY_KEYS);
  const columnTypes = new Map<string, Promise<Map<string, string>>>();

  /** Column names of a source to their types as SQL writes them. */
  async function describeSource(source: Source): Promise<Map<string, string>> {
    const statement = `SELECT * FROM ${sourceSql.relation(source)}`;
    const { columns } = await read(() => sql.unsafe(statement).describe());
    const types = await read(
      () =>
        sql<{ oid: number; type: string }[]>`
          SELECT oid::int8::int AS oid, format_type(oid, -1) AS type FROM pg_type
          WHERE oid = ANY (${arrayLiteral(columns.map(({ type }) => String(type)))}::oid[])`,
    );
    const names = new Map(types.map(({ oid, type }) => [oid, type]));
    return new Map(columns.map(({ name, type }) => [name, names.get(type) ?? 'text']));
  }

  function typesOf(stream: Stream): Promise<Map<string, string>> {
    const known = columnTypes.get(stream.name);
    if (known) return known;
    const described = describeSource(stream.source);
    columnTypes.set(stream.name, described);
    described.catch(() => columnTypes.delete(stream.name));
    return described;
  }

  return {
    /** Readings of bookings, for reconciling. */
    bookings: createBookingReader(sql, describeSource),

    /** Answers when the mirror can be read. */
    async ping(): Promise<{ version: string; database: string }> {
      const [row] = await read(
        () => sql<{ version: string; database: string }[]>`
          SELECT current_setting('server_version') AS version, current_database() AS database`,
      );
      return row ?? { version: '', database: '' };
    },

    /** Which database this is, to be compared with another connection's. */
    async place(): Promise<DatabaseIdentity> {
      return read(() => readDatabaseIdentity(sql));
    },

    /** What is wrong with a stream's source, in words; empty when every column it names is there. */
    async checkStream(stream: Stream): Promise<string[]> {
      let columns: Map<string, string>;
      try {
        columns = await describeSource(stream.source);
      } catch (error) {
        if (!isSourceFault(error)) throw error;
        return [`${messageOf(error)}${await suggestTable(stream.source)}`];
      }
      const named: (readonly [place: string, column: string])[] = [
        ...stream.key.map((column) => ['key', column] as const),
        ...templateColumns(stream.externalId).map((column) => ['externalId', column] as const),
        ...[...stream.fields].flatMap(([fieldId, from]) =>
          typeof from === 'string' ? [[`fields['${fieldId}']`, from] as const] : [],
        ),
        ...stream.references.flatMap(({ fieldId, key }) =>
          key.map((column) => [`references['${fieldId}']`, column] as const),
        ),
        ...(stream.cursor === undefined ? [] : [['cursor', stream.cursor] as const]),
      ];
      return named
        .filter(([, column]) => !columns.has(column))
        .map(
          ([place, column]) =>
            `${place}: there is no column ${column}; did you mean ${closest(column, [...columns.keys()])}?`,
        );
    },

    /**
     * `(key, row hash)` of the whole source, or of what is selected of it, in one snapshot and ordered by the key's
     * bytes: blocks of COPY lines, latin1. On its own connection, which ends with the reading, complete or not.
     */
    async *readHashes(stream: Stream, selection: Selection = {}): AsyncGenerator<string[]> {
      const matches = selection.keys && (await matchesOf(stream, selection.keys));
      let begun = false;
      for (const match of matches ?? [undefined]) {
        try {
          const condition = sourceSql.selectCondition(stream, selection, match);
          for await (const lines of readCopy(open(1), sourceSql.copyHashes(stream, condition))) {
            begun = true;
            yield lines;
          }
          return;
        } catch (error) {
          if (begun || match === undefined || match === matches?.at(-1) || !isDataFault(error))
            throw asMirrorError(error);
        }
      }
    },

    /**
     * Rows in the order of the stream's cursor, in one snapshot: from the watermark on, and what the overlap adds before
     * it. Given up in the middle, the reading ends there. On its own connection.
     */
    async *readByCursor(stream: Stream, range: CursorRange): AsyncGenerator<CursorRow[]> {
      const { cursor } = stream;
      if (cursor === undefined) return;
      const type = (await typesOf(stream)).get(cursor) ?? 'text';
      try {
        for await (const lines of readCopy(open(1), sourceSql.copyByCursor(stream, cursor, type, range))) {
          yield lines.map(toCursorRow);
        }
      } catch (error) {
        throw asMirrorError(error);
      }
    },

    /** Whether the stream's cursor is a time: then looking back by seconds has a meaning. */
    async isTimeCursor(stream: Stream): Promise<boolean> {
      const type = stream.cursor === undefined ? undefined : (await typesOf(stream)).get(stream.cursor);
      return type !== undefined && sourceSql.isTimeType(type);
    },

    /** Whether the source has a row at all. */
    async isEmpty(stream: Stream): Promise<boolean> {
      const rows = await read(() => sql.unsafe(`SELECT 1 FROM ${sourceSql.relation(stream.source)} LIMIT 1`));
      return rows.length === 0;
    },

    /**
     * What is wrong with a selection of a stream's rows, in PostgreSQL's words; undefined when nothing is. The server
     * parses it as one prepared statement and executes nothing of it: a condition with a second statement behind it
     * could end the transaction, and with it what keeps the session read-only.
     */
    async checkCondition(stream: Stream, selection: Selection): Promise<string | undefined> {
      try {
        for (const statement of sourceSql.tryConditions(stream, selection))
          await sql.unsafe(statement).describe();
        return undefined;
      } catch (error) {
        const isWrong = isDataFault(error) || isSourceFault(asMirrorError(error));
        if (!isWrong) throw asMirrorError(error);
        return messageOf(error).replace(/\s+/g, ' ');
      }
    },

    /** The rows of these keys as they are now; a key whose row is gone is not in the answer. */
    async readRows(stream: Stream, keys: readonly string[]): Promise<Map<string, MirrorRow>> {
      const types = await typesOf(stream);
      const columns = keyColumns(stream, keys);
      const rows = await read(async () => {
        try {
          return await sql.unsafe<Row[]>(sourceSql.selectRows(stream, types), columns);
        } catch (error) {
          if (!isDataFault(error)) throw error;
          return await sql.unsafe<Row[]>(sourceSql.selectRowsByText(stream), [arrayLiteral(keys)]);
        }
      });
      return new Map(
        rows.map((row) => {
          const {
            [sourceSql.KEY_COLUMN]: key,
            [sourceSql.HASH_COLUMN]: hash,
            ...rest
          } = row as Record<string, string>;
          return [key ?? '', { row: readArrays(rest, types), hash: hash ?? '' }];
        }),
      );
    },

    /** External ids that keys give without their rows, by key; none where the template, or the key's type, wants the row. */
    async readExternalIdsOfKeys(stream: Stream, keys: readonly string[]): Promise<Map<string, string>> {
      if (!sourceSql.isExternalIdUniqueByKey(stream)) return new Map();
      const type = (await typesOf(stream)).get(stream.key[0] ?? '') ?? '';
      if (!READS_AS_ITS_KEY.has(type)) return new Map();
      const named = keys.filter((key) => key !== '');
      return new Map(
        named.map((key) => [key, renderExternalId(stream.externalId, { [stream.key[0] ?? '']: key })]),
      );
    },

    /** External ids that several rows would give. Reads the whole source, unless the template rules it out. */
    async findSharedExternalIds(stream: Stream): Promise<SharedExternalId[]> {
      if (sourceSql.isExternalIdUniqueByKey(stream)) return [];
      const shared = await read(() =>
        sql.unsafe<SharedExternalId[]>(sourceSql.selectSharedExternalIds(stream, SHARED_ID_LIMIT + 1)),
      );
      if (shared.length <= SHARED_ID_LIMIT) return [...shared];
      const [first] = shared;
      throw new SlotsyncError(
        'external_ids_not_unique',
        `${stream.name}: more than ${SHARED_ID_LIMIT} external ids stand for several rows each, such as '${first?.externalId}'`,
        {
          remedy: `Name the columns that identify a row in streams.${stream.name}.externalId.`,
        },
      );
    },

    async close(): Promise<void> {
      await sql.end({ timeout: 2 });
    },
  };

  /** Ways to match keys, the fastest first; the second serves where a key does not read as its column's type. */
  async function matchesOf(stream: Stream, keys: readonly string[]): Promise<string[]> {
    const types = await typesOf(stream);
    return [
      sourceSql.matchKeys(stream, types, keyColumns(stream, keys)),
      sourceSql.matchKeysByText(stream, arrayLiteral(keys)),
    ];
  }

  async function suggestTable(source: Source): Promise<string> {
    if (!('table' in source)) return '';
    const tables = await read(
      () => sql<{ name: string }[]>`
        SELECT n.nspname || '.' || c.relname AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'v', 'm', 'p', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')`,
    );
    const names = tables.map(({ name }) => name);
    return names.length === 0 ? '' : `; did you mean ${closest(source.table.join('.'), names)}?`;
  }
}

function toCursorRow(line: string): CursorRow {
  const [cursor = '', key = '', hash = '', isAhead] = line.split('\t');
  const text = (column: string) => decodeColumn(unescapeColumn(column));
  return { cursor: text(cursor), key: text(key), hash, isAhead: isAhead === 't' };
}
