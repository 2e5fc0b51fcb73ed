// Incremental sync: starts runs for the changes in the inbox, and polls the streams that have a cursor. PostgreSQL's
// NOTIFY is a hint, since a notification may be lost. Polling the inbox every two seconds is authoritative.
import { codeOf } from '../errors/errors.js';
import { createStoppable, repeat } from '../process/lifecycle.js';
import { listenForChanges } from '../state/inbox/add-changes.js';
import { addDueChecks, takeChanges } from '../state/inbox/take-changes.js';
import type { ParsedConfig } from '../streams/config-schema.js';
import { fingerprintsOf } from '../streams/fingerprints.js';
import type { Stream } from '../streams/stream.js';
import { KEYS_OF_A_CHANGE } from '../sync/plan/planned-batches.js';
import { createPoll } from '../sync/detect/poll-cursor.js';
import type { SyncDeps } from '../sync/run/sync-deps.js';
import type { Bullmq } from './bullmq.js';
import { createChangeWorker } from './receive-changes.js';
import type { Producer } from './producer.js';
import type { Workers } from './workers.js';

type InboxWorkerOptions = Pick<SyncDeps, 'state' | 'mirror' | 'log' | 'streams'> &
  Pick<ParsedConfig, 'polling'> & {
    bullmq: Bullmq;
    producer: Producer;
    /** Workers that take runs of few changes while they have room. */
    workers: Pick<Workers, 'hasRoom' | 'newPlanner' | 'startFew'>;
  };

const SECOND = 1000;
const INBOX_EVERY_MS = 2 * SECOND;
/** Retry delay while another process takes from the inbox. That takes milliseconds, unless that process is gone. */
const BUSY_MS = { first: 50, most: SECOND };
/** Retry delay while another process polls the stream, which takes seconds. */
const POLL_BUSY_MS = SECOND;
/** Delay before a poll continues that stopped before the end of its stream. */
const CONTINUE_POLL_MS = 5 * SECOND;

export function createInboxWorker(options: InboxWorkerOptions) {
  const { producer, workers, state, log, streams, polling } = options;
  const loops: ReturnType<typeof repeat>[] = [];
  let busyMs = BUSY_MS.first / 2;
  let first: 'oldest' | 'newest' = 'oldest';
  let listener: ReturnType<typeof listenForChanges> | undefined;
  const { stopping, aborting, stop, abort } = createStoppable('inbox', log, () =>
    Promise.all([changeWorker.close(), listener?.close(), ...loops.map((loop) => loop.ended)]),
  );
  const changeWorker = createChangeWorker(options, stopping);

  async function takeFromInbox(): Promise<number | undefined> {
    if (!(await addDueChecks(state.db, [...streams.keys()]))) return undefined;
    const few = workers.hasRoom() ? { keys: KEYS_OF_A_CHANGE, token: workers.newPlanner() } : undefined;
    const fingerprints = fingerprintsOf(streams.values());
    const taken = await takeChanges(state.db, [...streams.keys()], fingerprints, few, { first });
    if (taken === 'busy') return (busyMs = Math.min(2 * busyMs, BUSY_MS.most));
    busyMs = BUSY_MS.first / 2;
    const isFull = first === 'newest' || (taken !== 'nothing' && taken.isFull);
    // Alternates between the oldest and the newest changes, so that a new change need not wait for very many older
    // changes.
    first = isFull && first === 'oldest' ? 'newest' : 'oldest';
    if (taken === 'nothing') return isFull ? 0 : undefined;
    // The workers may have stopped meanwhile. The run would then be left until the next sweep.
    if (taken.planner !== null && workers.hasRoom()) workers.startFew(taken);
    // If queueing fails, the run is still a row. A sweep queues it later.
    else await producer.enqueueRun(taken.runId, taken.lane);
    return isFull ? 0 : undefined;
  }

  function pollStream(stream: Stream) {
    const poll = createPoll(options, stream);
    const child = log.child({ stream: stream.name });
    const everyMs = polling.everySeconds * SECOND;
    return repeat(
      async () => {
        const polled = await poll(aborting);
        if (polled === 'busy') return Math.min(everyMs, POLL_BUSY_MS);
        if (polled?.anew)
          child.warn(
            { column: stream.cursor, why: polled.anew },
            'polling restarts at the first row of the stream',
          );
        if (polled?.impossible)
          child.warn(
            { column: stream.cursor, rows: polled.impossible },
            'rows not polled: no clock or sequence returns such a cursor value',
          );
        if (polled && polled.put > 0) child.info({ ...polled }, 'stream polled');
        return polled?.more ? Math.min(everyMs, CONTINUE_POLL_MS) : everyMs;
      },
      {
        everyMs,
        signal: stopping,
        onError: (error) => child.warn({ code: codeOf(error) }, 'polling the stream failed; it is retried'),
      },
    );
  }

  return {
    stop,
    abort,

    async start(): Promise<void> {
      if (stopping.aborted) return;
      await changeWorker.waitUntilReady();
      if (stopping.aborted) return;
      changeWorker.run().catch((error: unknown) => {
        log.error({ code: codeOf(error) }, 'change worker ended unexpectedly');
      });
      const inbox = repeat(takeFromInbox, {
        everyMs: INBOX_EVERY_MS,
        signal: stopping,
        onError: (error) =>
          log.warn({ code: codeOf(error) }, 'taking changes from the inbox failed; it is retried'),
      });
      listener = listenForChanges(state.url, inbox.wake);
      loops.push(inbox);
      for (const stream of streams.values()) if (stream.cursor !== undefined) loops.push(pollStream(stream));
    },
  };
}
