// Polls streams for changes: compares rows at or after the stream's watermark with the accepted rows, and puts
// differing keys into the inbox. The watermark only passes settled rows. So the next poll finds unsettled rows again,
// even if the inbox was lost.
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
  /** Returns milliseconds of a monotonic clock. */
  now?: (() => number) | undefined;
}

export interface Polled {
  /** Number of rows read. */
  rows: number;
  /** Number of keys added to the inbox. */
  put: number;
  /** True if the poll stopped before the last row, because the inbox has enough keys. */
  more: boolean;
  /** Reason why the stream is polled from its first row again. */
  anew?: 'other_column' | 'other_type' | 'values_went_back';
  /** Rows never polled, because no clock or sequence makes their cursor value. Counted once an hour. */
  impossible?: number;
}

/** Maximum number of a stream's polled keys that wait in the inbox. */
const KEYS_AT_ONCE = 10_000;

/**
 * Number of newest rows that stay beyond a watermark that is not a time, and are read again by each poll. A time too
 * far ahead is recognized by the clock. But with other cursors, a mistakenly huge value would hide all later rows. Up
 * to this many mistakes hide nothing.
 */
const ROWS_READ_AGAIN = 100;

/** Milliseconds between counts of rows with an impossible cursor. Without an index, a count reads the whole source. */
const COUNT_EVERY_MS = 60 * 60 * 1000;

const FAILED = { status: 'failed', runId: null, runKind: null, isWhole: false, failed: 0, dead: 0 } as const;

/** True if a person must correct the source or the mirror. An unreachable mirror is only retried. */
const isOfSource = (error: unknown) => /^mirror_(?!unreachable)/.test(codeOf(error));

export type Poll = ReturnType<typeof createPoll>;

/** Creates the poll of one stream. Its memory between polls may be lost without harm. */
export function createPoll(
  { mirror, state, polling, now = () => performance.now() }: PollDeps,
  declared: Stream,
) {
  const { name, cursor: column = '' } = declared;
  // A cursor that is not a time has no overlap in seconds. Instead, the watermark moves to a position only when the
  // overlap has passed since a poll reached it.
  let reached: { place: CursorPosition; at: number } | undefined;
  let countedAt: number | undefined;

  /**
   * Polls the stream once, until the inbox has enough keys. Returns `busy` if another process polls, undefined if the
   * stream was never synced. Throws errors of mirror and state. Stores a failure of the source as the stream's problem.
   */
  return async function poll(signal?: AbortSignal): Promise<Polled | 'busy' | undefined> {
    try {
      // Takes the turn before the transaction. A transaction that waits for the turn would hold a connection.
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
        // Plans refuse a key that is too long, so the row needs no check before the next sync.
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
    // Moves the watermark last, because runs of the stream wait for its locked row until the transaction ends.
    if (place || polled.anew) await setWatermark(tx, name, place && { ...place, column, type });
    if (hasFailed) await endPartialProblems(tx, [name]);
    return polled;
  }

  /** Returns the position to which the watermark may move. All rows up to `settledTo` are settled. */
  function passOverlap(settledTo: CursorPosition): CursorPosition | undefined {
    const due = reached && now() - reached.at >= polling.overlapSeconds * 1000 ? reached.place : undefined;
    if (!reached || due) reached = { place: settledTo, at: now() };
    return due;
  }
}

/** Statuses of records that wait for another record. They go to the inbox, but do not stop the watermark. */
const WAITS_FOR_OTHERS = new Set(['deferred', 'reserved', 'shared']);

/**
 * `settled`: nothing to do. `again`: put into the inbox, and the watermark may pass. `open`: put into the inbox, and
 * the watermark must not pass.
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
  // The service refused this row. It is sent again when its check is due.
  if (mark.status === 'failed' && mark.hash === hash) return 'settled';
  return WAITS_FOR_OTHERS.has(mark.status) ? 'again' : 'open';
}
