// Queue of the callers that wait for a quota slot in one lane of one process, first come, first served. Only one
// request to the slot store is open at a time, however many jobs wait. A granted slot goes to the caller that is first
// when it arrives.
import { setTimeout as sleep } from 'node:timers/promises';
import { messageOf, SlotsyncError } from '../../errors/errors.js';

const BACKOFF_FIRST_MS = 50;
const BACKOFF_MAX_MS = 1000;

interface Waiter<Grant> {
  readonly since: number;
  granted(grant: Grant): void;
  refused(reason: unknown): void;
}

/** Creates a queue. Its callers are refused when `closing` aborts. */
export function createWaitQueue<Grant>(store: {
  /** Asks the slot store for up to `wanted` slots. If its answer has `askMs`, it expects to be asked again then. */
  ask(wanted: number): Promise<{ grants: readonly Grant[]; askMs?: number | undefined }>;
  /** Tells the slot store that this queue is empty. */
  withdraw(): Promise<void>;
  /** Returns a granted slot to the store, if no caller waits for it any more. */
  giveBack(grant: Grant): void;
  giveUpMs: number;
  now(): number;
  closing: AbortSignal;
}) {
  const { now, closing } = store;
  const waiters = new Set<Waiter<Grant>>();
  let serving: Promise<void> | undefined;
  let pausing = new AbortController();

  async function serve(): Promise<void> {
    let failingSince: number | undefined;
    let backoffMs = BACKOFF_FIRST_MS;
    let registered = false;
    while (waiters.size > 0) {
      const asked = now();
      try {
        const answer = await store.ask(waiters.size);
        failingSince = undefined;
        backoffMs = BACKOFF_FIRST_MS;
        registered = answer.askMs !== undefined;
        answer.grants.forEach(handOver);
        if (answer.askMs !== undefined) await pause(answer.askMs);
      } catch (cause) {
        failingSince ??= asked;
        const latest = now() - store.giveUpMs;
        for (const waiter of waiters) {
          if (Math.max(waiter.since, failingSince) <= latest) waiter.refused(quotaUnavailable(cause));
        }
        await pause(backoffMs * (0.5 + Math.random() / 2));
        backoffMs = Math.min(2 * backoffMs, BACKOFF_MAX_MS);
      }
      if (registered && waiters.size === 0) {
        await store.withdraw().catch(() => undefined); // otherwise the store notices that the queue stopped asking
        registered = false;
      }
    }
    serving = undefined; // before the next waiter can join
  }

  function handOver(grant: Grant): void {
    const [first] = waiters;
    if (first) first.granted(grant);
    else store.giveBack(grant);
  }

  /** Waits, but no longer than until the last waiter leaves. */
  function pause(ms: number): Promise<void> {
    if (waiters.size === 0) return Promise.resolve();
    pausing = new AbortController();
    return sleep(ms, undefined, { signal: pausing.signal }).catch(() => undefined);
  }

  closing.addEventListener('abort', () => {
    for (const waiter of waiters) waiter.refused(limiterClosed());
  });

  return {
    /** Resolves with the caller's grant. Rejects with the signal's reason when the signal aborts. */
    join(signal?: AbortSignal): Promise<Grant> {
      return new Promise<Grant>((resolve, reject) => {
        if (signal?.aborted) return reject(signal.reason);
        if (closing.aborted) return reject(limiterClosed());
        const leave = () => {
          waiters.delete(waiter);
          if (waiters.size === 0) pausing.abort();
          signal?.removeEventListener('abort', onAbort);
        };
        const waiter: Waiter<Grant> = {
          since: now(),
          granted: (grant) => (leave(), resolve(grant)),
          refused: (reason) => (leave(), reject(reason)),
        };
        const onAbort = () => waiter.refused(signal?.reason);
        signal?.addEventListener('abort', onAbort);
        waiters.add(waiter);
        serving ??= serve();
      });
    },
    /** Resolves when no request to the slot store is open. */
    ended: async () => serving,
  };
}

export function quotaUnavailable(cause: unknown): SlotsyncError {
  return new SlotsyncError(
    'quota_unavailable',
    `the store of the quota cannot be reached: ${messageOf(cause)}`,
    {
      cause,
    },
  );
}

function limiterClosed(): SlotsyncError {
  return new SlotsyncError('limiter_closed', 'the process is shutting down');
}
