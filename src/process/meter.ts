// Interface through which the lower layers report events for the metrics, without knowing who counts them.

/** Reason why a request has no status: it was interrupted here, never reached the service, or lost its answer. */
export type Unanswered = 'interrupted' | 'unreachable' | 'lost';

export type Outcomes = Record<'synced' | 'unchanged' | 'deferred' | 'failed' | 'dead', number>;

export interface Meter {
  /** Called when a request has got its slot of the quota, with the seconds that it waited. */
  waited(lane: string, seconds: number): void;
  /** Called when a request has ended. `endpoint` is one of a few fixed names, never a path with an id. */
  requested(endpoint: string, status: number | Unanswered, seconds: number): void;
  /** Called with the number of connections to the service that are open now. */
  connected(open: number): void;
  /** Called when records of a stream have got their outcomes. */
  settled(stream: string, counts: Readonly<Outcomes>): void;
}

export const noMeter: Meter = {
  waited: () => undefined,
  requested: () => undefined,
  connected: () => undefined,
  settled: () => undefined,
};

// Counts the requests of this process by the second in which they were sent, and keeps their latest answers. A periodic
// task takes the counts and adds them to the state. Seconds are those of the host's clock, so that the counts of
// several processes can be added.

/** Answer to a request: the HTTP status, or the reason why there is no status. */
export interface Answer {
  answer: string;
  at: Date;
}

export interface CountedRequests {
  seconds: { second: Date; requests: number; throttled: number }[];
  latest: Answer | undefined;
  /** Latest answer with a 2xx status. Undefined before the first. */
  success: Answer | undefined;
}

export type RequestCounter = ReturnType<typeof createRequestCounter>;

/** Creates a counter. `clock` returns milliseconds since 1970. */
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
    /** Counts a request that has ended. `seconds` is the time since the request was sent. */
    requested(status: Parameters<Meter['requested']>[1], seconds: number): void {
      const now = clock();
      add(Math.floor((now - seconds * 1000) / 1000), 1, status === 429 ? 1 : 0);
      if (status === 'interrupted') return; // no answer of the service
      latest = { answer: String(status), at: new Date(now) };
      if (typeof status === 'number' && status >= 200 && status < 300) success = latest;
    },

    /** Returns the counts since the last call, or undefined if no request has ended. */
    take(): CountedRequests | undefined {
      if (bySecond.size === 0) return undefined;
      const seconds = [...bySecond].map(([second, counted]) => ({
        second: new Date(second * 1000),
        ...counted,
      }));
      bySecond.clear();
      return { seconds, latest, success };
    },

    /** Adds counts back that could not be written to the state. */
    putBack({ seconds }: CountedRequests): void {
      for (const { second, requests, throttled } of seconds)
        add(second.getTime() / 1000, requests, throttled);
    },
  };
}
