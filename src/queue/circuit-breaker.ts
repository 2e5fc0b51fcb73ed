// Circuit breaker: after several systemic failures in a row, this process stops sending, probes at growing intervals,
// and resumes after a successful probe. Wrong credentials then cost a dozen requests, not one for every batch.
import { errorEntry } from '../errors/error-catalogue.js';
import { codeOf, messageOf } from '../errors/errors.js';
import { repeat } from '../process/lifecycle.js';
import type { Logger } from '../process/logger.js';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
/** Number of systemic failures in a row that open the circuit breaker. */
const THRESHOLD = 5;
const FIRST_GAP_MS = 5 * SECOND;
const LONGEST_GAP_MS = 5 * MINUTE;

interface CircuitBreakerOptions {
  log: Logger;
  /** Aborted to end the probing. */
  signal: AbortSignal;
  /** Resolves when sending can succeed again. */
  probe: (signal: AbortSignal) => Promise<unknown>;
  pauseSending: (cause: unknown) => void;
  resumeSending: () => void;
}

export type CircuitBreaker = ReturnType<typeof createCircuitBreaker>;

export function createCircuitBreaker(options: CircuitBreakerOptions) {
  const { log, signal, probe, pauseSending, resumeSending } = options;
  let failures = 0;
  let isOpen = false;
  let gapMs = FIRST_GAP_MS;
  let successes = 0;
  /** Number of successes, by job, when the job last failed with a `compare` error. A later success blames the job. */
  const comparedAt = new Map<string, number>();
  /** Errors that are counted already. The failure of one request fails every batch in it, but counts once. */
  const counted = new WeakSet<object>();
  /** True if an opening was logged as an error since the last success. Further openings are logged as debug. */
  let isReported = false;
  /** First failure of the service since the last success. It alone does not stop sending. */
  let failing: { since: Date; code: string; message: string } | undefined;

  function open(cause: unknown): void {
    isOpen = true;
    log[isReported ? 'debug' : 'error'](
      { code: codeOf(cause), firstProbeSeconds: gapMs / SECOND },
      'circuit breaker open: sending stopped; it resumes after a successful probe',
    );
    isReported = true;
    pauseSending(cause);
    repeat(probeOnce, { everyMs: LONGEST_GAP_MS, firstAfterMs: gapMs, signal, onError: () => undefined });
  }

  async function probeOnce(): Promise<number | 'done'> {
    gapMs = Math.min(gapMs * 2, LONGEST_GAP_MS);
    try {
      await probe(signal);
    } catch (error) {
      log.debug({ code: codeOf(error), nextProbeSeconds: gapMs / SECOND }, 'probe failed');
      return gapMs;
    }
    if (signal.aborted) return 'done';
    isOpen = false;
    failures = 0;
    log.info('circuit breaker closed: sending resumed');
    resumeSending();
    return 'done';
  }

  function isFirst(error: unknown): boolean {
    if (!(error instanceof Error)) return true;
    const isKnown = counted.has(error);
    counted.add(error);
    return !isKnown;
  }

  return {
    isOpen: () => isOpen,
    failing: () => failing ?? null,

    /** Resets all failures, because a batch was applied. */
    succeeded(job: string): void {
      comparedAt.delete(job);
      successes++;
      failures = 0;
      gapMs = FIRST_GAP_MS;
      isReported = false;
      failing = undefined;
    },

    /** Counts a failure. Returns true if the job should wait without using up an attempt. */
    failed(error: unknown, job: string): boolean {
      const code = codeOf(error);
      const { systemic } = errorEntry(code);
      if (!systemic || signal.aborted) return false;
      if (isFirst(error)) failures++;
      if (!isOpen && failures >= THRESHOLD) open(error);
      if (systemic === 'wait') failing ??= { since: new Date(), code, message: messageOf(error) };
      if (systemic !== 'compare') return systemic === 'wait';
      const hadOthers = successes > (comparedAt.get(job) ?? successes);
      comparedAt.set(job, successes);
      return !hadOthers;
    },
  };
}
