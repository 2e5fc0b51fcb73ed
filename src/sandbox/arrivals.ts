// What reached the sandbox, and when: the evidence for every guarantee about the quota. The time is that at which the quota
// was checked, not that at which the client sent.

export interface Arrival {
  /** Milliseconds on a monotonic clock, with fractions. */
  at: number;
  method: string;
  path: string;
  /** The status of the answer; 0 without one. */
  status: number;
  /** Objects in the body of a PUT. */
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

  return {
    note(arrival: Arrival): Arrival {
      log.push(arrival);
      total += 1;
      if (log.length > most * 1.1) log = log.slice(-most);
      return arrival;
    },
    settle(arrival: Arrival, status: number): void {
      arrival.status = status;
      if (status === 429) refused += 1;
    },
    list: (): Arrival[] => log.slice(-most).map((arrival) => ({ ...arrival })),
    clear(): void {
      log = [];
      total = 0;
      refused = 0;
    },
    total: () => total,
    refused: () => refused,
    mostInAnySecond: (): number => mostInAnySecond(log.map((arrival) => arrival.at)),
  };
}

export type Arrivals = ReturnType<typeof createArrivals>;

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
