// Collects garbage while something is waited for: what only a weak reference holds is gone then.
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { until } from './wait.js';

/** The outcome of a promise, which is waited for while garbage is collected. */
export async function settleAmidCollections<T>(promise: Promise<T>): Promise<PromiseSettledResult<T>> {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  let settled: PromiseSettledResult<T> | undefined;
  void Promise.allSettled([promise]).then(([result]) => (settled = result));
  return until(
    () => {
      collect();
      return settled;
    },
    // A collection takes 50 ms of processor time, and one is enough for what only a weak reference holds.
    { describe: 'the end of a wait', intervalMs: 100 },
  );
}
