// Keys that wait in the inbox and that nobody takes, and why. Other programs may add any name of a stream: those that are
// named are few, and the rest is a number.
import type { Situation } from './situation.js';

export type WhyUntaken = 'not_configured' | 'no_worker' | 'unknown_to_workers';

export interface Untaken {
  why: WhyUntaken;
  /** Some of them, and how many there are. */
  streams: readonly string[];
  count: number;
  oldestSeconds: number;
}

/** By reason; none where a running worker takes them. */
export function findUntaken({
  inbox: { streams, others },
  configured,
  processes,
}: Pick<Situation, 'inbox' | 'configured' | 'processes'>): Untaken[] {
  const workers = processes.filter(({ isAlive, command }) => isAlive && command === 'worker');
  const whyOf = (stream: string): WhyUntaken | undefined => {
    if (configured !== null && !configured.includes(stream)) return 'not_configured';
    if (workers.length === 0) return 'no_worker';
    const isKnown = workers.some(({ fingerprints }) => !fingerprints || Object.hasOwn(fingerprints, stream));
    return isKnown ? undefined : 'unknown_to_workers';
  };
  return (['not_configured', 'no_worker', 'unknown_to_workers'] as const).flatMap((why) => {
    const named = streams.filter(({ stream }) => whyOf(stream) === why);
    const rest = why === 'not_configured' && configured !== null ? others : null;
    const count = named.length + (rest?.streams ?? 0);
    const ages = [...named, ...(rest ? [rest] : [])].map(({ oldestSeconds }) => oldestSeconds);
    if (count === 0) return [];
    const oldestSeconds = ages.reduce((most, age) => Math.max(most, age), 0);
    return [{ why, streams: named.map(({ stream }) => stream), count, oldestSeconds }];
  });
}
