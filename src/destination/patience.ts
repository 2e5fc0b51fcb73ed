// Reads of commands have no queue that repeats them. While the service fails they wait and ask again, as a queue does with
// the plan of a run.
import { setTimeout as sleep } from 'node:timers/promises';
import { codeOf, SlotsyncError } from '../errors/errors.js';
import type { Logger } from '../process/logger.js';
import { retryDelayMs } from '../time/retry-delay.js';
import type { Context } from './exchange.js';

/** Milliseconds without any answer to a read after which waiting ends: about as long as a plan is tried. */
const LONGEST_MS = 3 * 60 * 1000;

/** Repeats a read while it fails for a reason that may pass. Throws its last error, or the signal's reason. */
export type Patience = <T>(context: Pick<Context, 'signal'>, read: () => Promise<T>) => Promise<T>;

/** A caller with a queue of its own: every failure is thrown. */
export const noPatience: Patience = (_, read) => read();

/** `isMet`: the service has answered before. Until then, an address that cannot be reached is taken for a wrong one. */
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

/** Waits. Throws the signal's reason. */
export async function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  await sleep(ms, undefined, signal ? { signal } : {}).catch(() => signal?.throwIfAborted());
}

function mayPass(error: unknown, isMet: () => boolean): boolean {
  if (!(error instanceof SlotsyncError)) return false;
  const { code, facts } = error;
  if (code === 'service_unreachable') return isMet();
  // Any other page may be that of a wrong address.
  if (code === 'gateway_answered') return Number(facts['status']) >= 500;
  return code === 'service_failed' || code === 'answer_lost';
}
