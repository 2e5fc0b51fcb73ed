// `npm run soak [minutes] [seconds of faults in each]`: schedules of faults, and histories of ownership, seed after seed on
// both stores, until the time is over or one of them fails. `npm run soak histories [number]`: that many histories, from
// seed 1 on, and nothing else. A seed is repeated with SLOTSYNC_SEED=… npm run test:faults.
import { playSeed, type ChaosReport } from './chaos.js';
import { playHistory } from './chaos-histories.js';
import type { Store } from './chaos-world.js';
import { isRedisInstalled } from './redis-server.js';

const HISTORIES = 10;
const STEPS = 30;

const stores: Store[] = (await isRedisInstalled()) ? ['PostgreSQL', 'Redis'] : ['PostgreSQL'];
const [first, second] = process.argv.slice(2);
const chosen = process.env['SLOTSYNC_SEED'];

async function playAll(): Promise<number> {
  let well = 0;
  const play = async (name: string, playing: Promise<ChaosReport>) => {
    process.stdout.write(`SLOTSYNC_SEED=${name}\n`);
    const { faults, summary, evidence } = await playing;
    process.stdout.write(`${summary}\n`);
    if (faults.length > 0) {
      for (const fault of faults) process.stdout.write(`- ${fault}\n`);
      process.stdout.write(`Timeline, rows and logs: ${evidence}\n`);
      process.exit(1);
    }
    well++;
  };
  const playHistories = async (seed: number, store: Store) =>
    play(`${seed} (history, ${store})`, playHistory(seed, { store, steps: STEPS }));

  if (first === 'histories') {
    const from = Number(chosen ?? 1);
    for (let seed = from; seed < from + Number(second ?? HISTORIES); seed++)
      await playHistories(seed, stores[seed % stores.length] ?? 'PostgreSQL');
    return well;
  }
  const [minutes, seconds] = [Number(first ?? 30), Number(second ?? 60)];
  const ends = Date.now() + minutes * 60_000;
  for (let seed = Number(chosen ?? Math.floor(Math.random() * 1_000_000)); ; seed++) {
    for (const store of stores) {
      await play(`${seed} (${store})`, playSeed(seed, { store, seconds }));
      await playHistories(seed, store);
    }
    if (Date.now() > ends) return well;
  }
}

process.stdout.write(`${await playAll()} seeds, all well.\n`);
