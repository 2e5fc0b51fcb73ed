// The three ways in which a service may count requests a second. Which one the real service uses is not published, so a
// client has to stay within the quota under each of them. Pure: time is an argument, in milliseconds.

export type WindowKind = 'sliding' | 'fixed' | 'bucket';

/** How long to wait, in milliseconds, before a request would be accepted; 0 means this one was. */
export interface QuotaWindow {
  take(nowMs: number): number;
}

const SECOND = 1000;

/**
 * Accepts `rate` requests a second; a rate of 0 accepts everything. What is refused does not count. `wallOffsetMs` is
 * added to the given time where wall seconds matter (`fixed`).
 */
export function createWindow(kind: WindowKind, rate: number, wallOffsetMs = 0): QuotaWindow {
  if (rate <= 0) return { take: () => 0 };
  const capacity = Math.max(1, Math.floor(rate));
  switch (kind) {
    case 'sliding':
      return slidingWindow(capacity);
    case 'fixed':
      return fixedWindow(capacity, wallOffsetMs);
    case 'bucket':
      return bucket(capacity, rate);
  }
}

/** At most `capacity` accepted in any half-open second, wherever it begins. */
function slidingWindow(capacity: number): QuotaWindow {
  const accepted: number[] = []; // a ring: `next` is the index of the oldest when it is full
  let next = 0;
  return {
    take(nowMs) {
      const oldest = accepted[next];
      if (oldest !== undefined && nowMs - oldest < SECOND) return SECOND - (nowMs - oldest);
      accepted[next] = nowMs;
      next = (next + 1) % capacity;
      return 0;
    },
  };
}

/** At most `capacity` accepted between two ticks of the wall clock's seconds. */
function fixedWindow(capacity: number, wallOffsetMs: number): QuotaWindow {
  let second = -Infinity;
  let taken = 0;
  return {
    take(nowMs) {
      const wallMs = nowMs + wallOffsetMs;
      const current = Math.floor(wallMs / SECOND);
      if (current !== second) {
        second = current;
        taken = 0;
      }
      if (taken >= capacity) return (current + 1) * SECOND - wallMs;
      taken += 1;
      return 0;
    },
  };
}

/** Holds `capacity` tokens, refilled evenly; full at the start, so after a pause a client may send twice the rate in one second. */
function bucket(capacity: number, ratePerSecond: number): QuotaWindow {
  let tokens = capacity;
  let filledAtMs: number | undefined;
  return {
    take(nowMs) {
      const sinceMs = filledAtMs === undefined ? 0 : Math.max(0, nowMs - filledAtMs);
      tokens = Math.min(capacity, tokens + (sinceMs * ratePerSecond) / SECOND);
      filledAtMs = Math.max(nowMs, filledAtMs ?? nowMs);
      if (tokens < 1) return ((1 - tokens) * SECOND) / ratePerSecond;
      tokens -= 1;
      return 0;
    },
  };
}
