// The comparison every plan is made of: two readings in the byte order of the key, walked side by side in
// constant memory. Pure: it knows lines, not databases. Equal lines, the common case, are compared whole
// and never taken apart.
import { decodeColumn, unescapeColumn } from '../../postgres-copy.js';
import { SlotsyncError } from '../../errors.js';
import { decide, parseMark } from '../decide.js';

/** What has to be done about one key, by a write. */
export interface WriteEntry {
  operation: 'create' | 'update' | 'retry' | 'retire';
  key: string;
  /** Of a retirement: an earlier plan has released it, and it waits for the end of its reservations. */
  wasReleased?: true;
}

/** `back`: the row was seen to be gone and is in the mirror again; what else there is to do about it follows. */
export type PlanEntry = WriteEntry | { operation: 'forget' | 'back'; key: string };

export interface MergeCounts {
  create: number;
  update: number;
  retry: number;
  retire: number;
  forget: number;
  unchanged: number;
  /** Dead already, and not changed since. */
  dead: number;
  /** Rows in the mirror. */
  rows: number;
  /** Records the service is believed to hold, retired ones left out. */
  accepted: number;
}

/** Blocks of COPY lines: `key TAB hash` of the mirror, `key TAB mark` of the state (state/records/plan-marks.ts). */
export type Lines = AsyncIterable<readonly string[]>;

const NAMED_KEYS = 5;

/**
 * Yields what differs, in key order, and returns the counts. Throws SlotsyncError `key_not_unique`, `key_null`
 * or `key_order` after the last line, when the mirror's reading cannot be trusted: use nothing of what was
 * yielded then. `isForced`: yields what is unchanged or dead too.
 */
export async function* mergeReadings(
  mirror: Lines,
  marks: Lines,
  isForced = false,
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
        if (isForced) {
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

      const isRowOnly = recordOrder === undefined || (rowOrder !== undefined && rowOrder < recordOrder);
      const isRecordOnly = rowOrder === undefined || (recordOrder !== undefined && rowOrder > recordOrder);
      const known = isRowOnly ? undefined : parseMark(mark ?? '');
      const decision = decide(isRecordOnly ? undefined : (hash ?? ''), known, isForced);
      const key = decodeColumn((isRecordOnly ? recordOrder : rowOrder) ?? '');
      if (decision !== 'ended') counts[decision]++;
      if (known?.isAtService && known.status !== 'retired') counts.accepted++;
      if (known?.rowWasGone && !isRecordOnly) yield { operation: 'back', key };
      if (decision === 'retire' && known?.status === 'reserved')
        yield { operation: decision, key, wasReleased: true };
      else if (decision !== 'dead' && decision !== 'unchanged' && decision !== 'ended')
        yield { operation: decision, key };
      if (!isRecordOnly && !rows.step()) await rows.fill();
      if (!isRowOnly && !records.step()) await records.fill();
    }
  } finally {
    // Each reading holds a connection, and its neighbour may have failed or the plan been given up.
    await Promise.allSettled([rows.close(), records.close()]);
  }
  refuseFaults(faults);
  return counts;
}

const NULL_KEY = String.raw`\N`;

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
  const { repeated, repetitions, nulls, disorder } = faults;
  if (repetitions > 0) {
    const named = [...repeated].map((key) => `'${key}'`).join(', ');
    const message = `the key is not unique: ${repetitions} rows repeat a key, such as ${named}`;
    throw new SlotsyncError('key_not_unique', message);
  }
  if (nulls > 0)
    throw new SlotsyncError('key_null', `the key is null in ${nulls} ${nulls === 1 ? 'row' : 'rows'}`);
  if (disorder > 0) {
    const message = 'the mirror does not return its keys in the order of their UTF-8 bytes';
    throw new SlotsyncError('key_order', message);
  }
}
