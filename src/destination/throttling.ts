// What a 429 leads to. The service refused the request because the organization's quota is used up, so nothing is wrong
// with the request: the limiter pauses the whole organization for Retry-After, and the request is sent again below the
// job, which costs the job no attempt.
import { SlotsyncError } from '../errors.js';
import type { Logger } from '../logger.js';
import type { Meter } from '../meter.js';
import { noteInSpan } from '../tracing.js';
import type { Answer } from './http-errors.js';
import type { Lane, Limiter, Slot } from './quota/limiter.js';

/** 429 answers to one request before it is given back to the queue. */
const MOST_THROTTLES = 30;

/** Sends with a slot of the quota, which `send` releases; again after each 429. Throws `throttled` after 30 of them. */
export async function sendWithinQuota(
  { limiter, log, meter }: { limiter: Limiter; log: Logger; meter: Meter },
  { path, ...context }: { path: string } & WaitContext,
  send: (slot: Slot) => Promise<Answer>,
): Promise<Answer> {
  let waitedSeconds = 0;
  const waited = (seconds: number) => {
    meter.waited(context.lane, seconds);
    waitedSeconds += seconds;
    noteInSpan({ 'slotsync.quota.wait_seconds': waitedSeconds });
  };
  for (let throttles = 1; ; throttles++) {
    const answer = await send(await takeUsableSlot(limiter, waited, context));
    noteInSpan({ 'http.response.status_code': answer.status, 'http.request.resend_count': throttles - 1 });
    if (answer.status !== 429) return answer;
    const retryAfterMs = readRetryAfter(answer.retryAfter);
    await limiter.throttled(retryAfterMs);
    const { throttled, usedByOthers, allowed } = await limiter.usage();
    const counts = { throttles, throttled, allowed, usedByOthers };
    log.warn({ path, retryAfterMs, ...counts }, 'throttled: others use part of the quota');
    if (throttles === MOST_THROTTLES) {
      throw new SlotsyncError('throttled', `the service answered 429 ${throttles} times in a row`, {
        facts: { path },
      });
    }
  }
}

interface WaitContext {
  lane: Lane;
  signal?: AbortSignal | undefined;
  beforeSend?: (() => Promise<void>) | undefined;
}

/** A slot that was granted too long ago must not be used: it is returned, and another one taken. */
async function takeUsableSlot(
  limiter: Limiter,
  waited: (seconds: number) => void,
  { lane, signal, beforeSend }: WaitContext,
): Promise<Slot> {
  while (true) {
    const askedAt = performance.now();
    const slot = await limiter.take(lane, signal);
    waited((performance.now() - askedAt) / 1000);
    try {
      await beforeSend?.();
    } catch (error) {
      void slot.release();
      throw error;
    }
    if (slot.usable()) return slot;
    await slot.release();
  }
}

/** Milliseconds a Retry-After header asks for, as seconds or as a date. */
export function readRetryAfter(header: Answer['retryAfter'], now = Date.now()): number | undefined {
  const value = Array.isArray(header) ? header[0] : header;
  if (value === undefined || value.trim() === '') return undefined;
  if (/^\d+(\.\d+)?$/.test(value.trim())) return Number(value) * 1000;
  const at = /^[A-Za-z]{3,9},? /.test(value) ? Date.parse(value) : Number.NaN;
  return Number.isNaN(at) ? undefined : Math.max(0, at - now);
}
