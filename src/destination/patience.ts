// Repeats the queries of commands while the service fails. A queue would do so, but commands have no queue.
import { setTimeout as sleep } from 'node:timers/promises';
import { codeOf, SlotsyncError } from '../errors/errors.js';
import type { Logger } from '../process/logger.js';
import { retryDelayMs } from '../time/deadline.js';
import type { Context } from './exchange.js';

/** Milliseconds without an answer after which a query is given up; about as long as a plan is retried. */
const LONGEST_MS = 3 * 60 * 1000;

/** Repeats a query while it fails for a temporary reason. Throws the last error, or the signal's reason. */
export type Patience = <T>(context: Pick<Context, 'signal'>, read: () => Promise<T>) => Promise<T>;

/** Throws every failure at once, for callers whose queue retries. */
export const noPatience: Patience = (_, read) => read();

/** `isMet` returns true once the service has answered. Before that, an unreachable address counts as a wrong one. */
export function createPatience(log: Logger, isMet: () => boolean, clock = () => performance.now()): Patience {
  /** Time of the first failure since the latest answer. */
  let failingSince: number | undefined;
  return async ({ signal }, read) => {
    for (let attempts = 1; ; attempts++) {
      try {
        const answer = await read();
        failingSince = undefined;
        return answer;
      } catch (error) {
        failingSince ??= clock();
        if (!mayPass(error, isMet) || clock() - failingSince > LONGEST_MS) throw error;
        const afterMs = retryDelayMs(attempts);
        log.warn({ code: codeOf(error), afterMs }, 'the service does not answer a read; it is asked again');
        await pause(afterMs, signal);
      }
    }
  };
}

/** Waits, or throws the signal's reason when the signal aborts. */
export async function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  await sleep(ms, undefined, signal ? { signal } : {}).catch(() => signal?.throwIfAborted());
}

function mayPass(error: unknown, isMet: () => boolean): boolean {
  if (!(error instanceof SlotsyncError)) return false;
  const { code, facts } = error;
  if (code === 'service_unreachable') return isMet();
  // A gateway's answer below 500 may come from a wrong address, which waiting does not mend.
  if (code === 'gateway_answered') return Number(facts['status']) >= 500;
  return code === 'service_failed' || code === 'answer_lost';
}
