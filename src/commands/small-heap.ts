// A million objects that are read and compared leave much garbage. On a machine with much memory V8 lets hundreds of megabytes
// of it stand. Collected twice a second, 160 MB are the most there is in place of 240, for a tenth more time; with V8's own
// flags for a small heap it is 140 MB, for half as much time again.
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

const EVERY_MS = 500;

/** From here on to the end of the process. Call it before a command reads whole types. */
export function keepHeapSmall(): void {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  setInterval(collect, EVERY_MS).unref();
}
