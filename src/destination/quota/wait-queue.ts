// The waiters of one lane in one process: first come, first served. Near the store only one question to it is open at a
// time, whatever number of jobs wait; far from it a few are, because one at a time would grant no more than one slot in
// each round trip. A grant goes to the first waiter at the time it arrives, so a waiter that has left cannot lose one.
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { messageOf, SlotsyncError } from '../../errors/errors.js';

const BACKOFF_FIRST_MS = 50;
const BACKOFF_MAX_MS = 1000;
/** Questions that are open at once: one more for each such time that an answer takes, which is less than grants are apart. */
const ONE_QUESTION_EACH_MS = 40;
const MOST_QUESTIONS = 4;

interface Waiter<Grant> {
  readonly since: number;
  granted(grant: Grant): void;
  refused(reason: unknown): void;
}

export interface WaitQueueOptions<Grant> {
  /**
   * Asks the store once, as the waiter of this id. With `askMs` the store expects its next question so long after it has
   * answered this one.
   */
  ask(id: string, moreWaiting: boolean): Promise<{ grant?: Grant; askMs?: number | undefined }>;
  /** Reports to the store that the waiter of this id has left. */
  withdraw(id: string): Promise<void>;
  /** Returns a grant for which there is no waiter. */
  giveBack(grant: Grant): void;
  giveUpMs: number;
  now(): number;
  closing: AbortSignal;
}

export function createWaitQueue<Grant>({
  ask,
  withdraw,
  giveBack,
  giveUpMs,
  now,
  closing,
}: WaitQueueOptions<Grant>) {
  const waiters = new Set<Waiter<Grant>>();
  const serving = new Set<Promise<void>>();
  /** Questions that are open, or are asked again in a moment. */
  let questions = 0;
  /** How long the store takes to answer, by its fast answers: a slow one may come of load, which more questions only add to. */
  let roundTripMs = 0;
  let pausing = new AbortController();

  /** Opens as many questions as the waiters need. */
  function serveAll(): void {
    const most = Math.min(MOST_QUESTIONS, 1 + Math.floor(roundTripMs / ONE_QUESTION_EACH_MS));
    while (questions < Math.min(most, waiters.size)) {
      const served = serve().finally(() => serving.delete(served));
      serving.add(served);
    }
  }

  /** Asks while there is a waiter for each question. */
  async function serve(): Promise<void> {
    const id = randomUUID();
    let failingSince: number | undefined;
    let backoffMs = BACKOFF_FIRST_MS;
    let registered = false;
    questions++;
    while (waiters.size >= questions) {
      const asked = now();
      try {
        const answer = await ask(id, waiters.size > questions);
        const tookMs = now() - asked;
        roundTripMs = Math.min(tookMs, 0.9 * roundTripMs + 0.1 * tookMs);
        failingSince = undefined;
        backoffMs = BACKOFF_FIRST_MS;
        registered = answer.askMs !== undefined;
        if (answer.grant !== undefined) handOver(answer.grant);
        serveAll();
        // The next question takes as long to arrive as this one and its answer together: it is sent that much earlier.
        if (answer.askMs !== undefined) await pause(answer.askMs);
      } catch (cause) {
        failingSince ??= asked;
        const latest = now() - giveUpMs;
        for (const waiter of waiters) {
          if (Math.max(waiter.since, failingSince) <= latest) waiter.refused(quotaUnavailable(cause));
        }
        await pause(backoffMs * (0.5 + Math.random() / 2));
        backoffMs = Math.min(2 * backoffMs, BACKOFF_MAX_MS);
      }
      if (registered && waiters.size < questions) {
        await withdraw(id).catch(() => undefined); // otherwise the store notices that it is not asked any more
        registered = false;
      }
    }
    questions--; // before the next waiter can join
  }

  function handOver(grant: Grant): void {
    const [first] = waiters;
    if (first) first.granted(grant);
    else giveBack(grant);
  }

  /** Ends early when the last waiter leaves. */
  function pause(ms: number): Promise<void> {
    if (waiters.size === 0) return Promise.resolve();
    if (pausing.signal.aborted) pausing = new AbortController();
    return sleep(ms, undefined, { signal: pausing.signal }).catch(() => undefined);
  }

  closing.addEventListener('abort', () => {
    for (const waiter of waiters) waiter.refused(limiterClosed());
  });

  return {
    /** Resolves with this caller's grant; rejects with the signal's reason when it aborts. */
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
        serveAll();
      });
    },
    /** Ends when no question to the store is open. */
    async ended(): Promise<void> {
      while (serving.size > 0) await Promise.all(serving);
    },
  };
}

/** The error for a store that cannot be reached. */
export function quotaUnavailable(cause: unknown): SlotsyncError {
  return new SlotsyncError('quota_unavailable', `the quota's store cannot be reached: ${messageOf(cause)}`, {
    cause,
  });
}

function limiterClosed(): SlotsyncError {
  return new SlotsyncError('limiter_closed', 'the process is shutting down');
}
