// Polls streams for changed rows by a cursor column, such as the time of the last change. Puts the keys of changed rows
// into the inbox. The watermark only moves past rows that are settled, so that the next poll finds the others again.
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
import { readPolledRecords, type PolledRecord } from '../../state/records/read/plan-marks.js';
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
  /** Number of rows that were read. */
  rows: number;
  /** Number of keys that were put into the inbox. */
  put: number;
  /** True if the poll stopped before the last row, because enough keys are in the inbox. */
  more: boolean;
  /** Why the stream is polled from its first row again. */
  anew?: 'other_column' | 'other_type' | 'values_went_back';
  /** Number of rows that no poll finds, because their cursor value is impossible. Only counted once an hour. */
  impossible?: number;
}

/** Maximum number of keys of a stream that polls put into the inbox. */
const KEYS_AT_ONCE = 10_000;

/**
 * For cursors that are not times, the watermark stays this many rows behind the newest row. Otherwise one row with a
 * mistakenly huge value would move the watermark past all later rows. A time cursor needs no such rule, since rows in
 * the future are not read.
 */
const ROWS_READ_AGAIN = 100;

/** Milliseconds between counts of rows with impossible values. Without an index, a count reads the whole table. */
const COUNT_EVERY_MS = 60 * 60 * 1000;

const FAILED = { status: 'failed', runId: null, runKind: null, isWhole: false, failed: 0, dead: 0 } as const;

/** Returns true if somebody must correct the source or the mirror. An unreachable mirror is only tried again. */
const isOfSource = (error: unknown) => /^mirror_(?!unreachable)/.test(codeOf(error));

export type Poll = ReturnType<typeof createPoll>;

/** Creates the poll of a stream. What the poll remembers between calls may be lost without harm. */
export function createPoll(
  { mirror, state, polling, now = () => performance.now() }: PollDeps,
  declared: Stream,
) {
  const { name, cursor: column = '' } = declared;
  // If the cursor is not a time, the watermark moves to a position only some time after a poll has reached it, in case
  // rows arrive late.
  let reached: { place: CursorPosition; at: number } | undefined;
  let countedAt: number | undefined;

  /**
   * Polls a stream once, until the inbox has enough keys. Returns `busy` if another process polls, undefined if the
   * stream was never synced. Throws errors of mirror and state. A fault of the source is also stored as a problem of
   * the stream.
   */
  return async function poll(signal?: AbortSignal): Promise<Polled | 'busy' | undefined> {
    try {
      // Waits for the turn before the transaction begins, so that no connection is held while waiting.
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
        // A plan refuses a row whose key is too long. Until then the poll ignores it.
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
    // Moves the watermark last, because other runs wait for this row's lock until the transaction ends.
    if (place || polled.anew) await setWatermark(tx, name, place && { ...place, column, type });
    if (hasFailed) await endPartialProblems(tx, [name]);
    return polled;
  }

  /** Returns the position to which the watermark may move. Rows up to `settledTo` are settled. */
  function passOverlap(settledTo: CursorPosition): CursorPosition | undefined {
    const due = reached && now() - reached.at >= polling.overlapSeconds * 1000 ? reached.place : undefined;
    if (!reached || due) reached = { place: settledTo, at: now() };
    return due;
  }
}

/** Records in these statuses wait for another record. Their keys go to the inbox, but the watermark may pass them. */
const WAITS_FOR_OTHERS = new Set(['deferred', 'reserved', 'shared']);

/**
 * `settled`: nothing to do. `again`: the key goes to the inbox, and the watermark may pass. `open`: the key goes to the
 * inbox, but the watermark must not pass.
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
  // The service has refused this row. It is sent a second time when its check is due.
  if (mark.status === 'failed' && mark.hash === hash) return 'settled';
  return WAITS_FOR_OTHERS.has(mark.status) ? 'again' : 'open';
}
