// The comparison every plan is made of: two readings in the byte order of the key, walked side by side in
// constant memory. Pure: it knows lines, not databases. Equal lines, the common case, are compared whole
// and never taken apart.
import { decodeColumn, unescapeColumn } from '../../connections/postgres-copy.js';
import { SlotsyncError } from '../../errors/errors.js';
import type { PlanCounts } from '../../state/schema.js';
import { describeRepeatedKeys, isReservedKey, isShortenedKey } from '../../streams/local-key.js';
import { decideOperation, parseMark, type Decision } from '../object/decide-operation.js';

/** A write of one key. */
export interface WriteEntry {
  /** `repair`: its object drifts. */
  operation: 'create' | 'update' | 'retry' | 'retire' | 'repair';
  key: string;
  /** A retirement that an earlier plan has released: it waits for the end of its reservations. */
  wasReleased?: true;
  /** Its row was seen to be gone before. */
  wasGone?: true;
  /** A retry of what the service has never accepted. */
  isNew?: true;
  /** A retry whose row is as it was accepted: its object is looked at. */
  isCheck?: true;
  /** A repair of an object that is to be inactive. */
  isRetired?: true;
  /** It is sent only because the run is forced. */
  isForced?: true;
}

/** A row that is not sent, whatever else there would be to do about it. */
export interface RefusedEntry {
  operation: 'refuse';
  key: string;
  /** Hash of the row. */
  hash: string;
  /** The place of the external id that it shares with others; undefined: its key is too long. */
  sharedId: number | undefined;
  /** There is nothing to do about it otherwise. */
  isSettled: boolean;
  /** The operation otherwise. */
  decision: Decision;
}

/**
 * `back`: the row was seen to be gone and is in the mirror again. `unsettled`: the row is gone, and its record, which the
 * service may hold, is not in sync. What else there is to do about either follows.
 */
export type PlanEntry =
  WriteEntry | RefusedEntry | { operation: 'forget' | 'back' | 'unsettled'; key: string };

/**
 * How many keys each decision was made for; `rows` of the mirror; and `accepted`: records the service is believed to
 * hold, retired ones left out. `deadRows`: records that are given up and have a row.
 */
export type MergeCounts = Record<
  Exclude<Decision, 'ended' | 'check'> | 'rows' | 'accepted' | 'deadRows',
  number
> &
  Pick<PlanCounts, 'left_out' | 'excepted'>;

interface MergeOptions {
  /** Yields what is unchanged or dead too. */
  isForced?: boolean;
  /** False: an update of a record that is in sync is counted as left out, and not yielded. */
  sendsUpdates?: boolean;
  /** Keys of which only facts of the mirror are yielded: what differs is counted as excepted. */
  excepted?: ReadonlySet<string>;
}

const NONE: ReadonlySet<string> = new Set();

/**
 * Blocks of COPY lines: of the mirror `key TAB hash`, with `:shared:` and a number behind it when the row shares its
 * external id; of the state `key TAB mark` (state/records/read/plan-marks.ts).
 */
export type Lines = AsyncIterable<readonly string[]>;

const NAMED_KEYS = 5;

/**
 * Yields what differs, in key order, and returns the counts. Throws SlotsyncError `key_not_unique`, `key_null`
 * or `key_order` after the last line, when the mirror's reading cannot be trusted: use nothing of what was
 * yielded then.
 */
export async function* mergeReadings(
  mirror: Lines,
  marks: Lines,
  { isForced = false, sendsUpdates = true, excepted = NONE }: MergeOptions = {},
): AsyncGenerator<PlanEntry, MergeCounts> {
  const decided = { create: 0, update: 0, retry: 0, retire: 0, repair: 0, forget: 0, unchanged: 0, dead: 0 };
  const counts: MergeCounts = { ...decided, rows: 0, accepted: 0, deadRows: 0 };
  const count = (left: 'left_out' | 'excepted') => (counts[left] = (counts[left] ?? 0) + 1);
  const check = createKeyCheck();
  const rows = createReader(mirror);
  const records = createReader(marks);

  try {
    // The state's snapshot is the older one: what arrives in between has a row and no record, and is a harmless `create`.
    await records.fill();
    await rows.fill();
    while (true) {
      const row = rows.line;
      const record = records.line;
      if (row === undefined && record === undefined) break;
      let takesRow = true;
      let takesRecord = true;

      if (row === record && row !== undefined) {
        counts.rows++;
        counts.accepted++;
        check.last = row;
        const key = isForced ? decodeColumn(orderOf(row)) : '';
        if (!isForced) counts.unchanged++;
        else if (excepted.has(key)) count('excepted');
        else if (!sendsUpdates) count('left_out');
        else {
          counts.update++;
          yield { operation: 'update', key, isForced: true };
        }
      } else {
        const rowOrder = row === undefined ? undefined : orderOf(row);
        const recordOrder = record === undefined ? undefined : orderOf(record);
        const isNull = row !== undefined && splitLine(row)[0] === NULL_KEY;
        takesRow =
          isNull || (rowOrder !== undefined && (recordOrder === undefined || rowOrder <= recordOrder));
        takesRecord =
          !isNull && recordOrder !== undefined && (rowOrder === undefined || rowOrder >= recordOrder);
        if (takesRow) counts.rows++;
        if (takesRow && !check.accepts(row ?? '', rowOrder ?? '', isNull)) {
          takesRecord = false;
        } else {
          const known = takesRecord ? parseMark(splitLine(record ?? '')[1]) : undefined;
          const [hash, sharedId] = takesRow ? splitRest(splitLine(row ?? '')[1]) : [];
          const key = decodeColumn((takesRow ? rowOrder : recordOrder) ?? '');
          const isTooLong = takesRow && isShortenedKey(key);
          const decided = isTooLong ? 'dead' : decideOperation(hash, known, isForced);
          const isRefused = isTooLong || sharedId !== undefined;
          // A batch settles a record that is not in sync, also where its update is left out.
          const isInSync = known?.status === 'synced' || known?.status === 'retired';
          const isExcepted =
            excepted.has(key) && (isRefused || (decided !== 'unchanged' && decided !== 'ended'));
          const isLeftOut = !sendsUpdates && decided === 'update' && isInSync && !isRefused;
          const decision = isExcepted || isLeftOut ? 'ended' : decided;
          if (isExcepted) count('excepted');
          else if (isLeftOut) count('left_out');
          else if (decision !== 'ended') counts[decision === 'check' ? 'retry' : decision]++;
          if (decision === 'dead' && takesRow) counts.deadRows++;
          const isOfForce = isForced && !isTooLong && decision !== decideOperation(hash, known);
          const ofForce = isOfForce ? { isForced: true as const } : {};
          if (known?.isAtService && known.status !== 'retired') counts.accepted++;
          if (known?.rowWasGone && takesRow) yield { operation: 'back', key };
          if (known?.isAtService && !takesRow && !isInSync && !isExcepted)
            yield { operation: 'unsettled', key };
          if (hash !== undefined && isRefused && !isExcepted) {
            const isSettled = isTooLong
              ? known?.status === 'dead' && known.hash === hash
              : decision === 'unchanged' || decision === 'dead';
            yield { operation: 'refuse', key, hash, sharedId, isSettled, decision };
          } else if (decision === 'retire')
            yield {
              operation: decision,
              key,
              ...(known?.status === 'reserved' && { wasReleased: true }),
              ...(known?.rowWasGone && { wasGone: true }),
            };
          else if (decision === 'check') yield { operation: 'retry', key, isCheck: true };
          else if (decision === 'repair')
            yield { operation: decision, key, ...(!takesRow && { isRetired: true }) };
          else if (decision === 'retry' && !known?.isAtService)
            yield { operation: decision, key, isNew: true, ...ofForce };
          else if (decision !== 'dead' && decision !== 'unchanged' && decision !== 'ended')
            yield { operation: decision, key, ...ofForce };
        }
      }
      if (takesRow && !rows.step()) await rows.fill();
      if (takesRecord && !records.step()) await records.fill();
    }
  } finally {
    // Each reading holds a connection, and its neighbour may have failed, or the plan may have ended.
    await Promise.allSettled([rows.close(), records.close()]);
  }
  check.refuseFaults();
  return counts;
}

const NULL_KEY = String.raw`\N`;

function splitLine(line: string): [key: string, rest: string] {
  const tab = line.indexOf('\t');
  return tab < 0 ? [line, ''] : [line.slice(0, tab), line.slice(tab + 1)];
}

/** Splits the part of a line of the mirror behind its key. */
function splitRest(rest: string): [hash: string, sharedId: number | undefined] {
  const colon = rest.indexOf(':');
  return colon < 0
    ? [rest, undefined]
    : [rest.slice(0, colon), Number(rest.slice(rest.lastIndexOf(':') + 1))];
}

/** The key of a line, by which both readings are ordered. */
const orderOf = (line: string) => unescapeColumn(splitLine(line)[0]);

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

/** Counts the rows whose key is repeated, null, reserved or out of order. */
function createKeyCheck() {
  const repeated = new Set<string>();
  const faults = { repetitions: 0, nulls: 0, reserved: 0, disorder: 0 };
  return {
    /** The line of the row before; not taken apart unless it must be. */
    last: undefined as string | undefined,

    /** Whether the row is to be compared. */
    accepts(row: string, order: string, isNull: boolean): boolean {
      const before = this.last === undefined || isNull ? undefined : orderOf(this.last);
      if (isNull) faults.nulls++;
      else if (isReservedKey(order)) faults.reserved++;
      else if (before === order) {
        faults.repetitions++;
        if (repeated.size < NAMED_KEYS) repeated.add(decodeColumn(order));
      } else {
        if (before !== undefined && order < before) faults.disorder++;
        this.last = row;
        return true;
      }
      return false;
    },

    refuseFaults(): void {
      const { repetitions, nulls, reserved, disorder } = faults;
      if (repetitions > 0)
        throw new SlotsyncError('key_not_unique', describeRepeatedKeys(repetitions, [...repeated]));
      if (nulls > 0)
        throw new SlotsyncError('key_null', `the key is null in ${nulls} ${nulls === 1 ? 'row' : 'rows'}`);
      if (reserved > 0) {
        const rows = reserved === 1 ? 'the key of a row begins' : `the keys of ${reserved} rows begin`;
        throw new SlotsyncError(
          'key_reserved',
          `${rows} with '#former ', as those of objects without a row do`,
        );
      }
      if (disorder > 0) {
        const message = 'the mirror does not return its keys in the order of their UTF-8 bytes';
        throw new SlotsyncError('key_order', message);
      }
    },
  };
}
