// Limits the requests of all processes to the organization's quota. BullMQ's own limiter counts jobs that leave one
// queue, but the service counts requests.
//
// There are N slots. A request takes a slot, is sent, and releases the slot when the headers of its answer arrive. One
// second later the slot is free again. The service counts a request at some time between sending and answer. Therefore
// two successive requests of one slot are counted more than a second apart, and N slots allow at most N requests in any
// second. Network latency and the service's division of time do not matter. This rests on four rules:
//
// - One clock. All times are those of the store; a process only measures durations.
// - The slot outlives the request. Without an answer, the slot stays taken until its lease ends: the request timeout,
//   `lateWriteSeconds`, the second in which the request has to be sent (`usable`), and then the hold. A frozen service
//   reads the request when it wakes.
// - Only the holder releases a slot. A token has a generation, so that the late release of a lost slot has no effect.
// - Without state nothing is sent. A store without state waits before its first grant, and again for each answer to a
//   request from before the loss. A store that cannot be reached grants nothing.
//
// The store also decides the order of waiters. A waiter registers its lane with its first question, learns when to ask
// again, and is passed over if it does not ask.
//
// Not covered: a service that reads a request later than `lateWriteSeconds` after its timeout, a store clock that jumps
// forward, a process stopped between `usable` and the socket, and a store that loses its state while requests take
// longer than the boot guard.
import { randomUUID } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { openDeadline } from '../../time/deadline.js';
import { createWaitQueue, quotaUnavailable } from './wait-queue.js';
import { DEFAULT_LEASE_MS, LANES, SEND_WITHIN_MS, type Lane } from './quota-rules.js';
import type { QuotaUsage, SlotAnswer } from './store-answers.js';

export { LANES, type Lane, type QuotaUsage, type SlotAnswer };

export interface Slot {
  /** Returns false if the grant is too old to send a request. Then release this slot and take another. */
  usable(): boolean;
  /**
   * Releases the slot. Call it when the response headers have arrived or the request can no longer arrive. Idempotent;
   * never rejects. If the store cannot be reached, the slot becomes free when its lease ends.
   */
  release(): Promise<void>;
}

/** A client of the slot store: the wait queue of one lane in one process. */
export interface Waiter {
  id: string;
  lane: Lane;
  /** Number of requested slots: one for each waiting caller, up to a limit. */
  wanted: number;
}

/** Shared store of the slots. Each call is one atomic step, with the store's clock. */
export interface SlotStore {
  take(waiter: Waiter, leaseMs: number): Promise<SlotAnswer>;
  withdraw(waiterId: string): Promise<void>;
  release(token: string): Promise<void>;
  throttled(retryAfterMs?: number): Promise<void>;
  usage(): Promise<QuotaUsage>;
}

export type Limiter = ReturnType<typeof createLimiter>;

export interface LimiterOptions {
  store: SlotStore;
  /** Lease of a slot: milliseconds from its grant until its request can no longer arrive. Default 61 000. */
  leaseMs?: number | undefined;
  /** Milliseconds for which an unreachable store is retried before waiters are refused. Default 30 000. */
  giveUpMs?: number;
  /** Timeout of one answer of the store, in milliseconds. Default 5 000. */
  storeTimeoutMs?: number;
  now?: () => number;
}

interface Grant {
  slot: Slot;
  waitMs: number;
}

/** Maximum number of slots in one answer of the store. If the answer is lost, they stay taken for their lease. */
const MOST_AT_ONCE = 10;

const RELEASE_RETRIES_MS = [100, 1000];

/** Opens the limiter of one process: a wait queue for each lane, and a store that all processes share. */
export function createLimiter({
  store,
  leaseMs = DEFAULT_LEASE_MS,
  giveUpMs = 30_000,
  storeTimeoutMs = 5_000,
  now = () => performance.now(),
}: LimiterOptions) {
  const closing = new AbortController();
  setMaxListeners(0, closing.signal); // each wait queue and each retried release adds a listener
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
    // An answer after the timeout may still contain grants, which are released.
    const late = ({ grants }: SlotAnswer) => grants.forEach(({ token }) => void giveBack(token));
    const { grants, askMs } = await within(answer, storeTimeoutMs, late);
    // The store granted the slot after `asked`. So its lease covers sending within SEND_WITHIN_MS from `asked`.
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
      // Without a successful release, the slot becomes free only when its lease ends, which is slower but as safe.
      if (isReleased || retryMs === undefined || closing.signal.aborted) return;
      await sleep(retryMs, undefined, { signal: closing.signal }).catch(() => undefined);
    }
  }

  return {
    /**
     * Resolves when a request may be sent, never without a grant. Rejects with the signal's reason, or with
     * `quota_unavailable` (retry) if the store could not be reached for `giveUpMs`.
     */
    async take(lane: Lane, signal?: AbortSignal): Promise<Slot> {
      const { slot, waitMs } = await queues[lane].join(signal);
      try {
        await sleep(Math.ceil(waitMs), undefined, signal ? { signal } : {});
        return slot;
      } catch {
        void slot.release();
        throw signal?.reason;
      }
    },
    /** Reports a 429: pauses the organization for Retry-After (ms) plus a margin, and lowers the allowed rate. */
    async throttled(retryAfterMs?: number): Promise<void> {
      const known = retryAfterMs !== undefined && Number.isFinite(retryAfterMs) && retryAfterMs >= 0;
      await within(store.throttled(known ? retryAfterMs : undefined), storeTimeoutMs).catch(refuse);
    },
    usage: (): Promise<QuotaUsage> => within(store.usage(), storeTimeoutMs).catch(refuse),
    /**
     * Refuses waiters with `limiter_closed` (retry), and resolves when all releases have reached the store. Holders still
     * release their slots. Does not close the store's client.
     */
    async close(): Promise<void> {
      closing.abort();
      await Promise.all(Object.values(queues).map((queue) => queue.ended()));
      while (releases.size > 0) await Promise.all(releases);
    },
  };
}

function refuse(cause: unknown): never {
  throw quotaUnavailable(cause);
}

/** Returns the promise's result, or throws after `ms`. Passes a result that arrives later to `late`. */
async function within<T>(promise: Promise<T>, ms: number, late?: (value: T) => unknown): Promise<T> {
  const deadline = openDeadline({ ms });
  promise.then((value) => deadline.signal.aborted && late?.(value)).catch(() => undefined);
  return deadline.within(promise).finally(deadline.end);
}

/** Minimum milliseconds between two readings of the used quota. */
const READ_EVERY_MS = 1000;

/**
 * Returns a function for the progress display of a run. It returns the recent share of the quota that all processes
 * together use, from 0 to 1, or undefined while it is unknown.
 */
export function createQuotaUseReader(limiter: Limiter): () => Promise<number | undefined> {
  let before: { at: number; granted: number } | undefined;
  let use: number | undefined;
  return async () => {
    const at = performance.now();
    if (before && at - before.at < READ_EVERY_MS) return use;
    const usage = await limiter.usage().catch(() => undefined); // the next request reports the reason
    use =
      before && usage
        ? (((usage.granted - before.granted) / (at - before.at)) * 1000) / usage.rate
        : undefined;
    before = usage && { at, granted: usage.granted };
    return use;
  };
}
