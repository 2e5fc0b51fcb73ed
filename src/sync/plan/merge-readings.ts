// The comparison every plan is made of: two readings in the byte order of the key, walked side by side in
// constant memory. Pure: it knows lines, not databases. Equal lines, the common case, are compared whole
// and never taken apart.
import { decodeColumn, unescapeColumn } from '../../postgres-copy.js';
import { SlotsyncError } from '../../errors.js';

/**
 * What has to be done about one key. `forget`: it never reached the service and its row is gone. `back`: its row was
 * seen to be gone and is there again; what else there is to do about it follows.
 */
export interface PlanEntry {
  operation: 'create' | 'update' | 'retry' | 'retire' | 'forget' | 'back';
  key: string;
  /** Of a retirement: an earlier plan has let it through, and it waits for the end of its bookings. */
  passed?: true;
}

export interface MergeCounts {
  create: number;
  update: number;
  retry: number;
  retire: number;
  forget: number;
  unchanged: number;
  /** Given up earlier, and not changed since. */
  dead: number;
  /** Rows in the mirror. */
  rows: number;
  /** Records the service is believed to hold, retired ones left out. */
  accepted: number;
}

/** Blocks of COPY lines: `key TAB hash` of the mirror, `key TAB mark` of the state (state/records.ts). */
export type Lines = AsyncIterable<readonly string[]>;

const NAMED_KEYS = 5;

/**
 * Yields what differs, in key order, and returns the counts. Throws SlotsyncError `key_not_unique`, `key_null`
 * or `key_order` after the last line, when the mirror's reading cannot be trusted: use nothing of what was
 * yielded then. `every`: yields rows that are as accepted too, as updates, and those that were given up.
 */
export async function* mergeReadings(
  mirror: Lines,
  marks: Lines,
  every = false,
): AsyncGenerator<PlanEntry, MergeCounts> {
  const counts: MergeCounts = {
    create: 0,
    update: 0,
    retry: 0,
    retire: 0,
    forget: 0,
    unchanged: 0,
    dead: 0,
    rows: 0,
    accepted: 0,
  };
  const faults = { repeated: new Set<string>(), repetitions: 0, nulls: 0, disorder: 0 };
  const rows = createReader(mirror);
  const records = createReader(marks);
  let lastKey = '';
  let first = true;

  try {
    await rows.fill();
    await records.fill();
    while (true) {
      const row = rows.line;
      const record = records.line;
      if (row === undefined && record === undefined) break;

      if (row === record && row !== undefined) {
        counts.rows++;
        counts.accepted++;
        lastKey = row;
        first = false;
        if (every) {
          counts.update++;
          yield { operation: 'update', key: decodeColumn(unescapeColumn(splitLine(row)[0])) };
        } else {
          counts.unchanged++;
        }
        if (!rows.step()) await rows.fill();
        if (!records.step()) await records.fill();
        continue;
      }

      const [rowKey, hash] = row === undefined ? [] : splitLine(row);
      const [recordKey, mark] = record === undefined ? [] : splitLine(record);
      if (rowKey === NULL_KEY) {
        counts.rows++;
        faults.nulls++;
        if (!rows.step()) await rows.fill();
        continue;
      }
      const rowOrder = rowKey === undefined ? undefined : unescapeColumn(rowKey);
      const recordOrder = recordKey === undefined ? undefined : unescapeColumn(recordKey);

      if (rowOrder !== undefined && (recordOrder === undefined || rowOrder <= recordOrder)) {
        const before = first ? undefined : unescapeColumn(splitLine(lastKey)[0]);
        counts.rows++;
        if (before !== undefined && rowOrder === before) {
          faults.repetitions++;
          if (faults.repeated.size < NAMED_KEYS) faults.repeated.add(decodeColumn(rowOrder));
          if (!rows.step()) await rows.fill();
          continue;
        }
        if (before !== undefined && rowOrder < before) faults.disorder++;
        lastKey = row ?? '';
        first = false;
      }

      if (recordOrder === undefined || (rowOrder !== undefined && rowOrder < recordOrder)) {
        counts.create++;
        yield { operation: 'create', key: decodeColumn(rowOrder ?? '') };
        if (!rows.step()) await rows.fill();
      } else if (rowOrder === undefined || rowOrder > recordOrder) {
        const known = parseMark(mark ?? '');
        if (known.there && known.status !== 'retired') counts.accepted++;
        if (known.status === 'unretired') {
          counts.dead++;
        } else if (known.status !== 'retired') {
          const operation = known.there ? 'retire' : 'forget';
          counts[operation]++;
          const passed = known.status === 'reserved' ? { passed: true as const } : {};
          yield { operation, key: decodeColumn(recordOrder), ...passed };
        }
        if (!records.step()) await records.fill();
      } else {
        const known = parseMark(mark ?? '');
        if (known.there && known.status !== 'retired') counts.accepted++;
        const key = decodeColumn(rowOrder);
        if (known.wasGone) yield { operation: 'back', key };
        const compared = compare(hash ?? '', known);
        const operation = every ? ALL_THE_SAME[compared] : compared;
        counts[operation]++;
        if (operation !== 'dead' && operation !== 'unchanged') yield { operation, key };
        if (!rows.step()) await rows.fill();
        if (!records.step()) await records.fill();
      }
    }
  } finally {
    // Each reading holds a connection, and its neighbour may have failed or the plan been given up.
    await Promise.allSettled([rows.close(), records.close()]);
  }
  refuseFaults(faults);
  return counts;
}

const NULL_KEY = String.raw`\N`;

interface Mark {
  status: string;
  /** The service may hold the object. */
  there: boolean;
  hash: string;
  /** Its row was seen to be gone. */
  wasGone: boolean;
}

function parseMark(mark: string): Mark {
  const [status = '', there, hash, gone] = mark.split(':');
  if (hash === undefined) return { status: 'synced', there: true, hash: status, wasGone: false };
  return { status, there: there === 'a', hash, wasGone: gone !== undefined };
}

type Compared = 'create' | 'update' | 'retry' | 'dead' | 'unchanged';

/** What is done where what is unchanged and what was given up is sent too. */
const ALL_THE_SAME = {
  create: 'create',
  update: 'update',
  unchanged: 'update',
  retry: 'retry',
  dead: 'retry',
} as const;

/** A row whose line did not equal its record's. */
function compare(hash: string, { status, there, hash: known }: Mark): Compared {
  switch (status) {
    case 'synced':
      return hash === known ? 'unchanged' : 'update';
    case 'retired':
      return 'update';
    case 'dead':
      if (hash === known) return 'dead';
      return there ? 'update' : 'create';
    default:
      return 'retry';
  }
}

function splitLine(line: string): [key: string, rest: string] {
  const tab = line.indexOf('\t');
  return tab < 0 ? [line, ''] : [line.slice(0, tab), line.slice(tab + 1)];
}

/** A cursor over blocks: `step` moves within a block without waiting, `fill` waits for the next one. */
function createReader(lines: Lines) {
  const blocks = lines[Symbol.asyncIterator]();
  let block: readonly string[] = [];
  let at = 0;
  return {
    line: undefined as string | undefined,
    step(): boolean {
      if (++at >= block.length) return false;
      this.line = block[at];
      return true;
    },
    async fill(): Promise<void> {
      do {
        const next = await blocks.next();
        if (next.done) {
          this.line = undefined;
          block = [];
          return;
        }
        block = next.value;
      } while (block.length === 0);
      at = 0;
      this.line = block[0];
    },
    async close(): Promise<void> {
      await blocks.return?.();
    },
  };
}

function refuseFaults(faults: {
  repeated: Set<string>;
  repetitions: number;
  nulls: number;
  disorder: number;
}): void {
  const remedy = 'Correct `key` in the configuration, or the source; nothing of this stream was sent.';
  if (faults.repetitions > 0) {
    const named = [...faults.repeated].map((key) => `'${key}'`).join(', ');
    throw new SlotsyncError(
      'key_not_unique',
      `the key is not unique: ${faults.repetitions} rows repeat a key, such as ${named}`,
      {
        remedy,
      },
    );
  }
  if (faults.nulls > 0) {
    throw new SlotsyncError(
      'key_null',
      `the key is null in ${faults.nulls} ${faults.nulls === 1 ? 'row' : 'rows'}`,
      {
        remedy,
      },
    );
  }
  if (faults.disorder > 0) {
    throw new SlotsyncError(
      'key_order',
      'the mirror does not return its keys in the order of their UTF-8 bytes',
      {
        remedy: 'The mirror’s database must be encoded in UTF-8.',
      },
    );
  }
}
