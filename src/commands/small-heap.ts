// A million objects that are read and compared leave much garbage. On a machine with much memory V8 lets hundreds of megabytes
// of it stand. Collected twice a second, a million objects take 200 MB in place of 250, for a tenth more time; with V8’s own
// flags for a small heap it is 140 MB, for half as much time again.
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

const EVERY_MS = 500;
/** At most this much of the time: a collection of 30 ms takes a second on a machine that is busy with other things. */
const SHARE = 0.1;

/** Does work that reads whole types. */
export async function withSmallHeap<T>(
  work: () => Promise<T>,
  collect: () => void = exposeCollection(),
): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const collectAfter = (ms: number) => {
    timer = setTimeout(() => {
      const startedAt = performance.now();
      collect();
      collectAfter(Math.max(EVERY_MS, (performance.now() - startedAt) / SHARE));
    }, ms);
  };
  collectAfter(EVERY_MS);
  try {
    return await work();
  } finally {
    clearTimeout(timer);
  }
}

function exposeCollection(): () => void {
  setFlagsFromString('--expose-gc');
  return runInNewContext('gc') as () => void;
}
