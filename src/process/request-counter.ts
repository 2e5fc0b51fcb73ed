// Counts the requests of this process by the second in which they were sent, and keeps how they ended last. From time to
// time somebody takes what was counted and adds it to the state. Seconds are those of the host's clock, so that the
// counts of several processes can be added.
import type { Meter } from './meter.js';

/** The end of a request: the HTTP status, or why it has no status. */
export interface Answer {
  answer: string;
  at: Date;
}

export interface CountedRequests {
  seconds: { second: Date; requests: number; throttled: number }[];
  latest: Answer | undefined;
  /** The latest answer with 2xx; undefined: none yet. */
  success: Answer | undefined;
}

export type RequestCounter = ReturnType<typeof createRequestCounter>;

/** `clock`: milliseconds since 1970. */
export function createRequestCounter(clock: () => number = Date.now) {
  const bySecond = new Map<number, { requests: number; throttled: number }>();
  let latest: Answer | undefined;
  let success: Answer | undefined;

  function add(second: number, requests: number, throttled: number): void {
    const counted = bySecond.get(second) ?? { requests: 0, throttled: 0 };
    counted.requests += requests;
    counted.throttled += throttled;
    bySecond.set(second, counted);
  }

  return {
    /** A request ended; `seconds`: since it was sent. */
    requested(status: Parameters<Meter['requested']>[1], seconds: number): void {
      const now = clock();
      add(Math.floor((now - seconds * 1000) / 1000), 1, status === 429 ? 1 : 0);
      if (status === 'interrupted') return; // says nothing of the service
      latest = { answer: String(status), at: new Date(now) };
      if (typeof status === 'number' && status >= 200 && status < 300) success = latest;
    },

    /** The counts since the last call; undefined: no request ended. */
    take(): CountedRequests | undefined {
      if (bySecond.size === 0) return undefined;
      const seconds = [...bySecond].map(([second, counted]) => ({
        second: new Date(second * 1000),
        ...counted,
      }));
      bySecond.clear();
      return { seconds, latest, success };
    },

    /** Takes back what could not be written down. */
    putBack({ seconds }: CountedRequests): void {
      for (const { second, requests, throttled } of seconds)
        add(second.getTime() / 1000, requests, throttled);
    },
  };
}
