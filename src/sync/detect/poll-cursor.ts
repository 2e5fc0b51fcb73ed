// Polling: rows at or beyond a stream's watermark are compared with what was accepted, and those that differ go into the
// inbox. The watermark moves only over what is settled, so the next poll finds what is not done yet, whatever became of
// the inbox.
import { codeOf, messageOf } from '../../errors/errors.js';
import type { CursorRow } from '../../mirror/read-by-cursor.js';
import type { Queries } from '../../state/database.js';
import { addChanges } from '../../state/inbox/add-changes.js';
import {
  setWatermark,
  withPoll,
  type BeforePoll,
  type CursorPosition,
} from '../../state/inbox/poll-watermarks.js';
import { countWaiting } from '../../state/inbox/read-inbox.js';
import { readPolledRecords, type PolledRecord } from '../../state/records/read/polled-records.js';
import { endPartialProblems, noteProblems } from '../../state/streams.js';
import type { ParsedConfig } from '../../streams/config-schema.js';
import { isShortenedKey } from '../../streams/local-key.js';
import type { Stream } from '../../streams/stream.js';
import { readLookupTables, requireLookups } from '../run/current-streams.js';
import { decideOperation, parseMark } from '../object/decide-operation.js';
import type { SyncDeps } from '../run/sync-deps.js';

interface PollDeps extends Pick<SyncDeps, 'mirror' | 'state'> {
  polling: Pick<ParsedConfig['polling'], 'overlapSeconds' | 'lagSeconds'>;
  /** Milliseconds that only grow. */
  now?: (() => number) | undefined;
}

/** The result of a poll. */
export interface Polled {
  /** Rows that were read. */
  rows: number;
  /** Keys that were put into the inbox. */
  put: number;
  /** The poll stopped before the last row. */
  more: boolean;
  /** Why the stream is polled from its first row again. */
  anew?: 'other_column' | 'other_type' | 'values_went_back';
  /** Rows that are never polled: the value of their cursor comes from no clock or sequence. Counted once an hour. */
  impossible?: number;
}

/** Keys of a stream that polling lets wait in the inbox. */
const KEYS_AT_ONCE = 10_000;

/**
 * A time is read up to now, so a value far ahead waits. Of other cursors nobody can tell which value is far ahead: a
 * watermark at a huge number that was a mistake would hide every later row. So that watermark stays behind the newest
 * rows, which are read again each time: up to so many mistakes hide nothing.
 */
const ROWS_READ_AGAIN = 100;

/** Between two counts of rows with an impossible cursor: without an index each count reads the whole source. */
const COUNT_EVERY_MS = 60 * 60 * 1000;

const FAILED = { status: 'failed', runId: null, runKind: null, isWhole: false, failed: 0, dead: 0 } as const;

/** Whether a person has to correct the source or the mirror. A mirror that cannot be reached is only tried again. */
const isOfSource = (error: unknown) => /^mirror_(?!unreachable)/.test(codeOf(error));

export type Poll = ReturnType<typeof createPoll>;

/** The poll of one stream; what it keeps between two looks is lost without harm. */
export function createPoll(
  { mirror, state, polling, now = () => performance.now() }: PollDeps,
  declared: Stream,
) {
  const { name, cursor: column = '' } = declared;
  // A cursor that is no time cannot be looked back on by time: its watermark moves to where a look has come only when
  // the overlap has passed since.
  let reached: { place: CursorPosition; at: number } | undefined;
  let countedAt: number | undefined;

  /**
   * Polls the stream once. It stops when the inbox has enough. `busy`: another process is polling. Undefined: the stream was
   * never synced. Throws what the readings throw, and notes a failure of the source as the problem of the stream.
   */
  return async function poll(signal?: AbortSignal): Promise<Polled | 'busy' | undefined> {
    try {
      // The turn first: the poll's transaction must not wait for it.
      const [stream = declared] = await readLookupTables(mirror, [declared]);
      requireLookups(stream);
      return await mirror.takeTurn(() =>
        withPoll(state, name, (tx, before) => pollStream(tx, stream, before, signal)),
      );
    } catch (error) {
      if (isOfSource(error) && !signal?.aborted)
        await noteProblems(state.db, [name], { ...FAILED, code: codeOf(error), message: messageOf(error) });
      throw error;
    }
  };

  async function pollStream(
    tx: Queries,
    stream: Stream,
    { watermark: known, hasFailed }: BeforePoll,
    signal?: AbortSignal,
  ): Promise<Polled> {
    const { type, isTime } = await mirror.cursorType(stream);
    const polled: Polled = { rows: 0, put: 0, more: false };
    if (known && known.column !== column) polled.anew = 'other_column';
    else if (known && known.type !== type) polled.anew = 'other_type';
    const watermark = polled.anew ? undefined : known;
    if (countedAt === undefined || now() - countedAt >= COUNT_EVERY_MS) {
      const impossible = await mirror.countImpossible(stream);
      if (impossible > 0) polled.impossible = impossible;
      countedAt = now();
    }
    const budget = KEYS_AT_ONCE - (await countWaiting(tx, name));
    const trailing = isTime ? 0 : ROWS_READ_AGAIN;
    const newest: CursorPosition[] = [];
    let settledTo: CursorPosition | undefined;
    let isSettled = true;
    for await (const rows of mirror.readByCursor(stream, { watermark, ...polling })) {
      signal?.throwIfAborted();
      const keys = rows.map(({ key }) => key);
      const standings = await readPolledRecords(tx, name, keys);
      const putting = new Set<string>();
      for (const { key, hash, cursor, isAhead } of rows) {
        const standing = standings.get(key);
        // Plans refuse a key that is too long: it needs no look before the next sync.
        const verdict = isShortenedKey(key) ? 'settled' : classifyPolled(hash, standing);
        if (verdict === 'open') isSettled = false;
        if (isSettled && isAhead && newest.push({ cursor, localKey: key }) > trailing)
          settledTo = newest.shift();
        if (verdict !== 'settled' && !standing?.isWaiting) putting.add(key);
      }
      const room = Math.max(0, budget - polled.put);
      polled.rows += rows.length;
      polled.put += await addChanges(tx, name, [...putting].slice(0, room));
      if (putting.size > room) {
        polled.more = true;
        break;
      }
    }
    if (watermark && polled.rows === 0 && !(await mirror.hasReached(stream, watermark))) {
      polled.anew = 'values_went_back';
      polled.more = true;
    }
    if (polled.anew) reached = undefined;
    const place = settledTo && (isTime ? settledTo : passOverlap(settledTo));
    // Last: runs of the stream wait for its row until the transaction ends.
    if (place || polled.anew) await setWatermark(tx, name, place && { ...place, column, type });
    if (hasFailed) await endPartialProblems(tx, [name]);
    return polled;
  }

  /** The position that the watermark may move to, now that everything up to `settledTo` is settled. */
  function passOverlap(settledTo: CursorPosition): CursorPosition | undefined {
    const due = reached && now() - reached.at >= polling.overlapSeconds * 1000 ? reached.place : undefined;
    if (!reached || due) reached = { place: settledTo, at: now() };
    return due;
  }
}

/** Rows that are checked again without keeping the watermark: they wait for another row, or share their id with it. */
const WAITS_FOR_OTHERS = new Set(['deferred', 'reserved', 'shared']);

/**
 * `settled`: nothing to do. `again`: it is put into the inbox, and the watermark may pass it. `open`: it is put into the
 * inbox, and the watermark waits.
 */
export function classifyPolled(
  hash: CursorRow['hash'],
  record: PolledRecord | undefined,
): 'settled' | 'again' | 'open' {
  if (record?.isHeld) return 'settled';
  if (!record || record.mark === null) return 'open';
  const mark = parseMark(record.mark);
  if (mark.rowWasGone) return 'open';
  if (['unchanged', 'dead'].includes(decideOperation(hash, mark))) return 'settled';
  // Refused as it is, and sent once more when its check is due.
  if (mark.status === 'failed' && mark.hash === hash) return 'settled';
  return WAITS_FOR_OTHERS.has(mark.status) ? 'again' : 'open';
}
