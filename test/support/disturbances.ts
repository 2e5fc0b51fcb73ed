// Networks that disturb the connections that go through them, for a while. Then the network is as before; the connections
// are as it left them.
import { setTimeout as pause } from 'node:timers/promises';
import type { Hop } from './hop.js';

/** By what the network does, for about so many milliseconds. */
export const DISTURBANCES: Record<string, (hop: Hop, ms: number) => Promise<void>> = {
  async stalls(hop, ms) {
    hop.stall(ms);
    await pause(ms);
  },
  async 'forgets its connections'(hop) {
    hop.forget();
  },
  async 'takes no connections'(hop, ms) {
    hop.refuse();
    hop.dropAll();
    await pause(ms);
    await hop.accept();
  },
  'resets connections': (hop, ms) => repeat(ms, () => hop.dropAll()),
  'ends connections amid an answer': (hop, ms) => repeat(ms, (time) => hop.cutAfter(17 * 2 ** time)),
  async 'is narrow, uneven and late to close'(hop, ms) {
    hop.setShape({ delayMs: 5, jitterMs: 40, bytesPerSecond: 50_000, pieceBytes: 50, closeMs: 5000 });
    await pause(ms / 2);
    hop.dropAll();
    await pause(ms / 2);
    hop.setShape({});
  },
};

/** Ten times, within that time. */
async function repeat(ms: number, act: (time: number) => void): Promise<void> {
  for (let time = 0; time < 10; time++) {
    act(time);
    await pause(ms / 10);
  }
}
