// Polling: rows at or beyond a stream's watermark are compared with what was accepted, and those that differ go into the
// inbox. The watermark moves only over what is settled, so the next poll finds what is not done yet, whatever became of
// the inbox.
import type { CursorRow } from '../../mirror/mirror.js';
import { addChanges } from '../../state/inbox/add-changes.js';
import { moveWatermark, withPoll, type CursorPosition } from '../../state/inbox/poll-watermarks.js';
import { countWaiting } from '../../state/inbox/read-inbox.js';
import { readPolledRecords, type PolledRecord } from '../../state/records/read/polled-records.js';
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

/** Keys of a stream that polling lets wait in the inbox. */
const KEYS_AT_ONCE = 10_000;

/**
 * A time is read up to now, so a value far ahead waits. Of other cursors nobody can tell which value is far ahead: a
 * watermark at a huge number that was a mistake would hide every later row. So that watermark stays behind the newest
 * rows, which are read again each time: up to so many mistakes hide nothing.
 */
const ROWS_READ_AGAIN = 100;

export type Poll = ReturnType<typeof createPoll>;

/** The poll of one stream; what it keeps between two looks is lost without harm. */
export function createPoll(
  { mirror, state, polling, now = () => performance.now() }: PollDeps,
  declared: Stream,
) {
  const { name } = declared;
  // A cursor that is no time cannot be looked back on by time: its watermark moves to where a look has come only when
  // the overlap has passed since.
  let reached: { place: CursorPosition; at: number } | undefined;

  /**
   * Returns how many rows were read and keys `put` into the inbox, and whether there is `more`: it stops when the inbox
   * has enough. `busy`: another process is polling. Undefined: the stream was never synced. Throws what the readings throw.
   */
  return async function poll(signal?: AbortSignal) {
    // The turn first: the poll's transaction must not wait for it.
    const [stream = declared] = await readLookupTables(mirror, [declared]);
    requireLookups(stream);
    return mirror.takeTurn(() =>
      withPoll(state, name, async (tx, watermark) => {
        const polled = { rows: 0, put: 0, more: false };
        const budget = KEYS_AT_ONCE - (await countWaiting(tx, stream.name));
        const range = { watermark, ...polling };
        const trailing = (await mirror.isTimeCursor(stream)) ? 0 : ROWS_READ_AGAIN;
        const newest: CursorPosition[] = [];
        let settledTo: CursorPosition | undefined;
        let isSettled = true;
        for await (const rows of mirror.readByCursor(stream, range)) {
          signal?.throwIfAborted();
          const keys = rows.map(({ key }) => key);
          const standings = await readPolledRecords(tx, stream.name, keys);
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
          polled.put += await addChanges(tx, stream.name, [...putting].slice(0, room));
          if (putting.size > room) {
            polled.more = true;
            break;
          }
        }
        const place = settledTo && (await passOverlap(settledTo));
        if (place) await moveWatermark(tx, stream.name, place);
        return polled;
      }),
    );
  };

  /** The position that the watermark may move to, now that everything up to `settledTo` is settled. */
  async function passOverlap(settledTo: CursorPosition): Promise<CursorPosition | undefined> {
    if (await mirror.isTimeCursor(declared)) return settledTo;
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
