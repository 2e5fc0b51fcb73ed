// Merges the sorted keys of mirror and state into the differences of a plan, in constant memory. Pure. Most lines of
// both sides are equal; equal lines are compared as strings, without parsing.
import { decodeColumn, unescapeColumn } from '../../connections/postgres-copy.js';
import { SlotsyncError } from '../../errors/errors.js';
import type { PlanCounts } from '../../state/schema.js';
import { describeRepeatedKeys, isReservedKey, isShortenedKey } from '../../streams/local-key.js';
import { plural } from '../../text/format.js';
import { decideOperation, parseMark, type Decision, type Mark } from '../object/decide-operation.js';

/** A planned write of one key. */
export interface WriteEntry {
  /** `repair`: sends an object again that differs at the service although its row is unchanged. */
  operation: 'create' | 'update' | 'retry' | 'retire' | 'repair';
  key: string;
  /** True for a deactivation that an earlier plan released, but that was postponed because of reservations. */
  wasReleased?: true;
  /** True if an earlier plan has already noted that the row was deleted. */
  wasGone?: true;
  /** True for a retry of a record, or an update of a linked row, that the service has never accepted. */
  isNew?: true;
  /** True if the object is only read back, because the row has not changed since it was accepted. */
  isCheck?: true;
  /** True for a repair of an object that should be inactive. */
  isRetired?: true;
  /** True if the record is sent only because of `--force`. */
  isForced?: true;
}

/** A row that the plan refuses to send: its key is too long, or several rows have its external id. */
export interface RefusedEntry {
  operation: 'refuse';
  key: string;
  hash: string;
  /** Index in the list of shared external ids. Undefined if the row is refused because its key is too long. */
  sharedId: number | undefined;
  /** True if the row would not be sent anyway, because it has not changed. */
  isSettled: boolean;
  /** Decision about the row, as if it could be sent. */
  decision: Decision;
}

/**
 * A difference between mirror and state. `back`: a deleted row exists again. `unsettled`: the row of a record that is
 * not in sync was deleted. Another entry with the same key may follow.
 */
export type PlanEntry =
  WriteEntry | RefusedEntry | { operation: 'forget' | 'back' | 'unsettled'; key: string };

/**
 * Number of keys for each decision. `rows`: rows in the mirror. `accepted`: active objects that the service is believed
 * to have. `deadRows`: rows of given-up records.
 */
export type MergeCounts = Record<
  Exclude<Decision, 'ended' | 'check'> | 'rows' | 'accepted' | 'deadRows',
  number
> &
  Pick<PlanCounts, 'left_out' | 'excepted'>;

interface MergeOptions {
  /** If true, unchanged and given-up records are yielded too. */
  isForced?: boolean;
  /** If false, updates are only counted as `left_out`, unless the record is not in sync. */
  sendsUpdates?: boolean;
  /** Keys that an operator excepted from sending. Their differences are only counted as `excepted`. */
  excepted?: ReadonlySet<string>;
}

const NONE: ReadonlySet<string> = new Set();

/**
 * Blocks of COPY lines. Mirror: `key TAB hash`, followed by `:shared:` and an index if several rows have the external
 * id. State: `key TAB mark`, see state/records/read/plan-marks.ts.
 */
export type Lines = AsyncIterable<readonly string[]>;

const NAMED_KEYS = 5;

/**
 * Passes the differences to `add` in key order, and returns the counts. Throws SlotsyncError `key_not_unique`,
 * `key_null`, `key_reserved` or `key_order` after the last line. Then everything passed before is invalid.
 */
export async function mergeReadings(
  mirror: Lines,
  marks: Lines,
  add: (entry: PlanEntry) => Promise<void>,
  options: MergeOptions = {},
): Promise<MergeCounts> {
  const { counts, addDifference } = createDifferences(add, options);
  const check = createKeyCheck();
  const rows = createReader(mirror);
  const records = createReader(marks);

  try {
    // Opens the state's snapshot first. It misses records written in between, which only causes a harmless `create`.
    await records.fill();
    await rows.fill();
    while (rows.line !== undefined || records.line !== undefined) {
      const row = rows.line;
      const record = records.line;
      let takesRow = true;
      let takesRecord = true;
      if (row === record && row !== undefined && !options.isForced) {
        counts.rows++;
        counts.accepted++;
        counts.unchanged++;
        check.last = row;
      } else {
        const rowOrder = row === undefined ? undefined : orderOf(row);
        const recordOrder = record === undefined ? undefined : orderOf(record);
        const isNull = row !== undefined && splitLine(row)[0] === NULL_KEY;
        takesRow =
          isNull || (rowOrder !== undefined && (recordOrder === undefined || rowOrder <= recordOrder));
        takesRecord =
          !isNull && recordOrder !== undefined && (rowOrder === undefined || rowOrder >= recordOrder);
        if (takesRow) counts.rows++;
        if (takesRow && !check.accepts(row ?? '', rowOrder ?? '', isNull)) takesRecord = false;
        else await addDifference(takesRow ? row : undefined, takesRecord ? record : undefined);
      }
      if (takesRow && !rows.step()) await rows.fill();
      if (takesRecord && !records.step()) await records.fill();
    }
  } finally {
    // Closes both readings in any case, because each holds a database connection.
    await Promise.allSettled([rows.close(), records.close()]);
  }
  check.refuseFaults();
  return counts;
}

/** Decides what each key's lines of mirror and state mean for the plan, and counts the decisions. */
function createDifferences(
  add: (entry: PlanEntry) => Promise<void>,
  { isForced = false, sendsUpdates = true, excepted = NONE }: MergeOptions,
) {
  const decided = { create: 0, update: 0, retry: 0, retire: 0, repair: 0, forget: 0, unchanged: 0, dead: 0 };
  const counts: MergeCounts = { ...decided, rows: 0, accepted: 0, deadRows: 0 };
  const count = (left: 'left_out' | 'excepted') => (counts[left] = (counts[left] ?? 0) + 1);

  /** Adds what one key's lines mean. Undefined: this side has no line of the key. */
  async function addDifference(row: string | undefined, record: string | undefined): Promise<void> {
    const known = record === undefined ? undefined : parseMark(splitLine(record)[1]);
    const [hash, sharedId] = row === undefined ? [] : splitRest(splitLine(row)[1]);
    const key = decodeColumn(orderOf(row ?? record ?? ''));
    const isTooLong = row !== undefined && isShortenedKey(key);
    const decision = isTooLong ? 'dead' : decideOperation(hash, known, isForced);
    const isRefused = isTooLong || sharedId !== undefined;
    // A record not in sync is settled by a batch, so its update is added even if `operations` exclude it.
    const isInSync = known?.status === 'synced' || known?.status === 'retired';
    const isExcepted = excepted.has(key) && (isRefused || (decision !== 'unchanged' && decision !== 'ended'));
    const isLeftOut = !sendsUpdates && decision === 'update' && isInSync && !isRefused;
    if (known?.isAtService && known.status !== 'retired') counts.accepted++;
    if (known?.rowWasGone && row !== undefined) await add({ operation: 'back', key });
    if (isExcepted || isLeftOut) return void count(isExcepted ? 'excepted' : 'left_out');
    if (decision !== 'ended') counts[decision === 'check' ? 'retry' : decision]++;
    if (decision === 'dead' && row !== undefined) counts.deadRows++;
    if (known?.isAtService && row === undefined && !isInSync) await add({ operation: 'unsettled', key });
    if (hash !== undefined && isRefused) {
      const isSettled = isTooLong
        ? known?.status === 'dead' && known.hash === hash
        : decision === 'unchanged' || decision === 'dead';
      return add({ operation: 'refuse', key, hash, sharedId, isSettled, decision });
    }
    const entry = entryOf(decision, key, known, hash);
    if (entry) await add(entry);
  }

  return { counts, addDifference };
}

/** The entry that a decision makes; undefined: none. `hash`: of the row. */
function entryOf(
  decision: Decision,
  key: string,
  known: Mark | undefined,
  hash?: string,
): PlanEntry | undefined {
  if (decision === 'dead' || decision === 'unchanged' || decision === 'ended') return undefined;
  if (decision === 'forget') return { operation: decision, key };
  if (decision === 'check') return { operation: 'retry', key, isCheck: true };
  const entry: WriteEntry = { operation: decision, key };
  if (decision === 'retire' && known?.status === 'reserved') entry.wasReleased = true;
  if (decision === 'retire' && known?.rowWasGone) entry.wasGone = true;
  if (decision === 'repair' && hash === undefined) entry.isRetired = true;
  if (decision === 'retry' && !known?.isAtService) entry.isNew = true;
  if (decision !== decideOperation(hash, known)) entry.isForced = true;
  return entry;
}

const NULL_KEY = String.raw`\N`;

function splitLine(line: string): [key: string, rest: string] {
  const tab = line.indexOf('\t');
  return tab < 0 ? [line, ''] : [line.slice(0, tab), line.slice(tab + 1)];
}

/** Splits a mirror line without its key into the row's hash and the index of its shared external id. */
function splitRest(rest: string): [hash: string, sharedId: number | undefined] {
  const colon = rest.indexOf(':');
  return colon < 0
    ? [rest, undefined]
    : [rest.slice(0, colon), Number(rest.slice(rest.lastIndexOf(':') + 1))];
}

/** Returns the key of a line as bytes. Mirror and state are sorted by it. */
const orderOf = (line: string) => unescapeColumn(splitLine(line)[0]);

/** Reads lines one by one from blocks. `step` moves on within a block; `fill` waits for the next block. */
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

/** Counts rows whose keys are repeated, null, reserved or not in byte order. */
function createKeyCheck() {
  const repeated = new Set<string>();
  const faults = { repetitions: 0, nulls: 0, reserved: 0, disorder: 0 };
  return {
    /** Line of the previous row. Its key is parsed only when needed. */
    last: undefined as string | undefined,

    /** Counts the row if its key is invalid. Returns true if the key is valid. */
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
      if (nulls > 0) throw new SlotsyncError('key_null', `the key is null in ${plural(nulls, 'row')}`);
      if (reserved > 0) {
        const rows = plural(reserved, 'row');
        const message = `the key begins with '#former ', which is reserved for former objects, in ${rows}`;
        throw new SlotsyncError('key_reserved', message);
      }
      if (disorder > 0)
        throw new SlotsyncError(
          'key_order',
          'the mirror returns keys that are not sorted by their UTF-8 bytes',
        );
    },
  };
}
