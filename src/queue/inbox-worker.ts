// The incremental door: whatever is in the inbox becomes runs at once. Woken by PostgreSQL's notifications; a look every
// second is the truth behind them, since a notification may be lost. Part of `worker`, and of nothing else.
import { setTimeout as sleep } from 'node:timers/promises';
import { codeOf } from '../errors.js';
import type { Logger } from '../logger.js';
import type { Mirror } from '../mirror/mirror.js';
import type { State } from '../state/database.js';
import { listenForChanges } from '../state/inbox/add-changes.js';
import { takeChanges } from '../state/inbox/take-changes.js';
import type { ParsedConfig } from '../streams/config-schema.js';
import type { Stream } from '../streams/stream.js';
import { createPoll } from '../sync/detect/poll-cursor.js';
import type { Backend } from './bullmq.js';
import { createChangeWorker } from './change-jobs.js';
import type { Producer } from './producer.js';

export interface InboxOptions {
  backend: Backend;
  producer: Producer;
  state: State;
  mirror: Mirror;
  log: Logger;
  streams: ReadonlyMap<string, Stream>;
  polling: ParsedConfig['polling'];
}

export type Inbox = ReturnType<typeof createInbox>;

const SECOND = 1000;
const LOOK_EVERY_MS = SECOND;
/** While another process takes from the inbox, which is a matter of milliseconds. */
const BUSY_MS = 50;
/** Until a poll that left something goes on. */
const POLL_ON_MS = 5 * SECOND;
/** How long what is begun may take once it is interrupted. */
const END_WITHIN_MS = 5 * SECOND;

export function createInbox(options: InboxOptions) {
  const { producer, state, log, streams, polling } = options;
  const stopping = new AbortController();
  const interrupting = new AbortController();
  const polls = new Set<Promise<void>>();
  let looking: Promise<void> | undefined;
  let again = false;
  let listener: ReturnType<typeof listenForChanges> | undefined;
  let timer: NodeJS.Timeout | undefined;
  let isConnected = false;
  let stopped: Promise<void> | undefined;
  const changeWorker = createChangeWorker(options);

  function look(): void {
    again = true;
    if (stopping.signal.aborted) return;
    looking ??= lookUntilQuiet().finally(() => {
      looking = undefined;
      if (again) look();
    });
  }

  async function lookUntilQuiet(): Promise<void> {
    while (again && !stopping.signal.aborted) {
      again = false;
      try {
        const taken = await takeChanges(state.db, [...streams.keys()]);
        if (taken === 'nothing') continue;
        again = true;
        if (taken === 'busy') await sleep(BUSY_MS);
        // A run that cannot be queued is a row all the same, and is queued from there.
        else await producer.enqueueRun(taken.runId, 'incremental');
      } catch (error) {
        again = false;
        log.warn({ code: codeOf(error) }, 'the inbox could not be emptied; it is tried again');
      }
    }
  }

  async function pollUntilStopped(stream: Stream): Promise<void> {
    const poll = createPoll(options, stream);
    const child = log.child({ stream: stream.name });
    while (!stopping.signal.aborted) {
      let waitMs = polling.everySeconds * SECOND;
      try {
        const polled = await poll(interrupting.signal);
        if (polled && polled.put > 0) child.info({ ...polled }, 'stream polled');
        if (polled?.more) waitMs = Math.min(waitMs, POLL_ON_MS);
      } catch (error) {
        if (stopping.signal.aborted) return;
        child.warn({ code: codeOf(error) }, 'the stream could not be polled; it is tried again');
      }
      await sleep(waitMs, undefined, { signal: stopping.signal }).catch(() => undefined);
    }
  }

  async function closeWorker(): Promise<void> {
    // A connection that is being made when BullMQ closes stays open.
    if (!isConnected) await Promise.allSettled([changeWorker.waitUntilReady()]);
    await changeWorker.close();
  }

  async function stop(graceMs: number): Promise<void> {
    stopping.abort();
    clearInterval(timer);
    const interrupted = setTimeout(() => interrupting.abort(), graceMs);
    const ended = Promise.all([closeWorker(), listener?.close(), looking, ...polls]).then(() => true);
    const closed = new AbortController();
    const tooLate = new Promise((resolve) => {
      interrupting.signal.addEventListener('abort', resolve, { once: true });
      if (interrupting.signal.aborted) resolve(undefined);
    })
      .then(() => sleep(END_WITHIN_MS, false, { signal: closed.signal }))
      .catch(() => false);
    await Promise.race([ended, tooLate]);
    closed.abort();
    clearTimeout(interrupted);
  }

  return {
    /** Begins to empty the inbox, and to poll the streams that have a cursor. */
    async start(): Promise<void> {
      if (stopping.signal.aborted) return;
      await changeWorker.waitUntilReady();
      isConnected = true;
      if (stopping.signal.aborted) return;
      changeWorker.run().catch((error: unknown) => {
        log.error({ code: codeOf(error) }, 'the queue of changes is read no more');
      });
      listener = listenForChanges(state.url, look);
      timer = setInterval(look, LOOK_EVERY_MS);
      for (const stream of streams.values()) {
        if (stream.cursor !== undefined) polls.add(pollUntilStopped(stream));
      }
      look();
    },

    /** Takes no more, and resolves when what was begun is done, or a little after `graceMs`. */
    stop(graceMs: number): Promise<void> {
      return (stopped ??= stop(graceMs));
    },

    /** Interrupts what was begun: nothing of it is lost. */
    abort(): void {
      stopped ??= stop(0);
      interrupting.abort();
    },
  };
}
