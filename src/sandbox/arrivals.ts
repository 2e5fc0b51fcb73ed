// The requests that reached the sandbox, and when: the evidence for every guarantee about the quota. The time is that at which the quota
// was checked, not that at which the client sent.
import type { ReceivedRequest } from './http.js';

export interface Arrival {
  /** Milliseconds on a monotonic clock, with fractions. */
  at: number;
  method: string;
  path: string;
  /** The status of the answer; 0 without one. */
  status: number;
  /** Objects in the body of a write. */
  objects?: number;
  /** The lane the client named in `X-Slotsync-Lane`, if it did. The service knows no such header. */
  lane?: string;
}

const SECOND = 1000;

/** A log of at most `most` arrivals: the oldest are forgotten. */
export function createArrivals(most = 100_000) {
  let log: Arrival[] = [];
  let total = 0;
  let refused = 0;
  let answers: Record<string, Record<number, number>> = {};

  return {
    /** Notes a request that has arrived now. */
    note({ method, path, headers }: ReceivedRequest): Arrival {
      const lane = headers['x-slotsync-lane'];
      const arrival = { at: performance.now(), method, path, status: 0 };
      log.push(typeof lane === 'string' ? Object.assign(arrival, { lane }) : arrival);
      total += 1;
      if (log.length > most * 1.1) log = log.slice(-most);
      return arrival;
    },
    settle(arrival: Arrival, status: number): void {
      arrival.status = status;
      const byStatus = (answers[`${arrival.method} ${arrival.path}`] ??= {});
      byStatus[status] = (byStatus[status] ?? 0) + 1;
      if (status === 429) refused += 1;
    },
    controls: {
      /** Every request that reached the service, in order; the last 100 000. */
      arrivals: (): Arrival[] => log.slice(-most).map((arrival) => ({ ...arrival })),
      /** Forgets the arrivals and what was counted of them. */
      clearArrivals(): void {
        log = [];
        total = 0;
        refused = 0;
        answers = {};
      },
      /** How many requests reached the service. */
      requests: () => total,
      /** How many of them were answered 429. */
      refused: () => refused,
      /** How many were answered, by endpoint and status, as `{ 'PUT /v1/objects': { 200: 7 } }`. */
      answers: () => structuredClone(answers),
      /** The most arrivals, accepted and refused, in one half-open second, wherever it begins. */
      mostInAnySecond: () => mostInAnySecond(log.map(({ at }) => at)),
    },
  };
}

/** The most of the given times (milliseconds) in one half-open second, wherever it begins. */
export function mostInAnySecond(times: readonly number[]): number {
  const sorted = [...times].sort((a, b) => a - b);
  let most = 0;
  let first = 0;
  sorted.forEach((time, last) => {
    while (time - (sorted[first] ?? time) >= SECOND) first += 1;
    most = Math.max(most, last - first + 1);
  });
  return most;
}
