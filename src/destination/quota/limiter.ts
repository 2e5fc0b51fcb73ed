// The organization's quota, shared by every request of every process. BullMQ's own limiter counts jobs that leave one
// queue, which is not what the service limits.
//
// Why it is safe. There are N slots. A request takes one, is sent, and releases it when the headers of its answer arrive;
// a second after that the slot is free again. A request that was given up without an answer does not release its slot: a
// service that is frozen reads it when it wakes. The service counts a request at some time between sending and answer, so
// two successive users of one slot are counted more than a second apart: each slot allows at most one request in any
// second, N slots at most N, however long the network takes and however the service divides time into seconds. This
// rests on four things, each ensured here or in the stores:
// - One clock. Every time is the store's; a process only measures durations.
// - The slot outlives the request. It is not released for its holder before the lease has ended: the request timeout,
//   `lateWriteSeconds`, the second in which the request has to be sent (`usable`), and then the hold.
// - A slot is released by its holder only. Tokens carry a generation; a late release of a lost slot has no effect.
// - Without state nothing is sent. A store without state waits before its first grant, and again for each answer to
//   what was sent before the loss; a store that cannot be reached grants nothing.
//
// The store also decides the order: a waiter registers with its lane by asking, learns when to ask again, and is passed
// over when it does not.
//
// Not covered: a service that reads a request later than `lateWriteSeconds` after its timeout, a store clock that jumps
// forward, a process stopped between `usable` and the socket, and a store that loses its state while requests take longer
// than the boot guard.
import { randomUUID } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { openDeadline } from '../../time/deadline.js';
import { createWaitQueue, quotaUnavailable } from './wait-queue.js';
import { DEFAULT_LEASE_MS, LANES, SEND_WITHIN_MS, type Lane } from './quota-rules.js';
import type { QuotaUsage, SlotAnswer } from './store-answers.js';

export { LANES, type Lane, type QuotaUsage, type SlotAnswer };

export interface Slot {
  /** False when too much time has passed since the grant: release this slot and take another before sending. */
  usable(): boolean;
  /** To be called when the response headers have arrived or the request can no longer arrive. Idempotent, never rejects:
   * where the store cannot be reached, the slot becomes free when its lease ends. */
  release(): Promise<void>;
}

/** Who asks for a slot: the wait queue of one lane in one process. */
export interface Waiter {
  id: string;
  lane: Lane;
  /** Slots, at least one: as many as callers wait in it, as far as they come in one answer. */
  wanted: number;
}

/** The place of the slots. Each call is one atomic step on the store's clock. */
export interface SlotStore {
  take(waiter: Waiter, leaseMs: number): Promise<SlotAnswer>;
  /** The waiter no longer waits. */
  withdraw(waiterId: string): Promise<void>;
  release(token: string): Promise<void>;
  throttled(retryAfterMs?: number): Promise<void>;
  usage(): Promise<QuotaUsage>;
}

export interface Limiter {
  /** Resolves when a request may be sent. Rejects with the signal's reason, or with `quota_unavailable`
   * (retry) when the store could not be reached for `giveUpMs`; never resolves without a grant. */
  take(lane: Lane, signal?: AbortSignal): Promise<Slot>;
  /** To be called for each 429: pauses the organization for Retry-After (in ms) and a little, and lowers N. */
  throttled(retryAfterMs?: number): Promise<void>;
  usage(): Promise<QuotaUsage>;
  /** Refuses waiters with `limiter_closed` (retry) and ends when every release has reached the store. Slots still held are
   * released by their holders as before. The store's client belongs to its opener. */
  close(): Promise<void>;
}

export interface LimiterOptions {
  store: SlotStore;
  /** From a grant until its request can no longer arrive. Milliseconds, default 61 000. */
  leaseMs?: number | undefined;
  /** How long an unreachable store is asked before waiters are refused. Default 30 000. */
  giveUpMs?: number;
  /** How long one answer of the store may take. Default 5 000. */
  storeTimeoutMs?: number;
  /** A monotonic clock in milliseconds. */
  now?: () => number;
}

interface Grant {
  slot: Slot;
  waitMs: number;
}

/** Grants of one answer. Each takes the store a while, and is lost for its lease when the answer is. */
const MOST_AT_ONCE = 10;

const RELEASE_RETRIES_MS = [100, 1000];

/** Opens the limiter of a process: a wait queue for each lane, in front of a store that all processes share. */
export function createLimiter({
  store,
  leaseMs = DEFAULT_LEASE_MS,
  giveUpMs = 30_000,
  storeTimeoutMs = 5_000,
  now = () => performance.now(),
}: LimiterOptions): Limiter {
  const closing = new AbortController();
  setMaxListeners(0, closing.signal); // each wait queue and each release that is retried listens
  const releases = new Set<Promise<void>>();
  const queues = Object.fromEntries(LANES.map((lane) => [lane, queueOf(lane)])) as Record<
    Lane,
    ReturnType<typeof queueOf>
  >;

  function queueOf(lane: Lane) {
    const id = randomUUID();
    return createWaitQueue<Grant>({
      ask: (waiting) => ask({ id, lane, wanted: Math.min(waiting, MOST_AT_ONCE) }),
      withdraw: () => within(store.withdraw(id), storeTimeoutMs),
      giveBack: (grant) => void grant.slot.release(),
      giveUpMs,
      now,
      closing: closing.signal,
    });
  }

  async function ask(waiter: Waiter) {
    const asked = now();
    const answer = store.take(waiter, leaseMs);
    // An answer that arrives too late may carry grants: they are returned.
    const late = ({ grants }: SlotAnswer) => grants.forEach(({ token }) => void giveBack(token));
    const { grants, askMs } = await within(answer, storeTimeoutMs, late);
    // The store granted after `asked`, so the lease covers a sending from here on for SEND_WITHIN_MS.
    const taken = grants.map(({ token, waitMs }) => ({
      slot: createSlot(token, asked + waitMs + SEND_WITHIN_MS),
      waitMs,
    }));
    if (taken.every(({ slot }) => slot.usable())) return { grants: taken, askMs };
    for (const { slot } of taken) void slot.release();
    throw new Error('the grant arrived too late to be used');
  }

  function createSlot(token: string, usableUntil: number): Slot {
    let released: Promise<void> | undefined;
    return {
      usable: () => now() <= usableUntil,
      release: () => (released ??= giveBack(token)),
    };
  }

  function giveBack(token: string): Promise<void> {
    const release = sendRelease(token).finally(() => releases.delete(release));
    releases.add(release);
    return release;
  }

  async function sendRelease(token: string): Promise<void> {
    for (const retryMs of [...RELEASE_RETRIES_MS, undefined]) {
      const isReleased = await within(store.release(token), storeTimeoutMs).then(
        () => true,
        () => false,
      );
      // Otherwise the slot becomes free when its lease ends, later but as safely.
      if (isReleased || retryMs === undefined || closing.signal.aborted) return;
      await sleep(retryMs, undefined, { signal: closing.signal }).catch(() => undefined);
    }
  }

  return {
    async take(lane, signal) {
      const { slot, waitMs } = await queues[lane].join(signal);
      try {
        await sleep(Math.ceil(waitMs), undefined, signal ? { signal } : {});
        return slot;
      } catch {
        void slot.release();
        throw signal?.reason;
      }
    },
    async throttled(retryAfterMs) {
      const known = retryAfterMs !== undefined && Number.isFinite(retryAfterMs) && retryAfterMs >= 0;
      await within(store.throttled(known ? retryAfterMs : undefined), storeTimeoutMs).catch(refuse);
    },
    usage: () => within(store.usage(), storeTimeoutMs).catch(refuse),
    async close() {
      closing.abort();
      await Promise.all(Object.values(queues).map((queue) => queue.ended()));
      while (releases.size > 0) await Promise.all(releases);
    },
  };
}

function refuse(cause: unknown): never {
  throw quotaUnavailable(cause);
}

/** The promise's result, or an error after `ms`; what arrives later is handed to `late`. */
async function within<T>(promise: Promise<T>, ms: number, late?: (value: T) => unknown): Promise<T> {
  const deadline = openDeadline({ ms });
  promise.then((value) => deadline.signal.aborted && late?.(value)).catch(() => undefined);
  return deadline.within(promise).finally(deadline.end);
}
