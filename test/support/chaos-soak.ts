// `npm run soak [minutes] [seconds of faults in each]`: seeds one after another, on both stores, until the time is
// over or one of them fails. A seed is repeated with SLOTSYNC_SEED=… npm run test:faults.
import { playSeed } from './chaos.js';
import type { Store } from './chaos-world.js';
import { isRedisInstalled } from './redis-server.js';

const [minutes = 30, seconds = 60] = process.argv.slice(2).map(Number);
const stores: Store[] = (await isRedisInstalled()) ? ['PostgreSQL', 'Redis'] : ['PostgreSQL'];
const ends = Date.now() + minutes * 60_000;
let seed = Number(process.env['SLOTSYNC_SEED'] ?? Math.floor(Math.random() * 1_000_000));

for (let well = 0; ; seed++) {
  for (const store of stores) {
    process.stdout.write(`SLOTSYNC_SEED=${seed} (${store})\n`);
    const { faults, summary, evidence } = await playSeed(seed, { store, seconds });
    process.stdout.write(`${summary}\n`);
    if (faults.length > 0) {
      for (const fault of faults) process.stdout.write(`- ${fault}\n`);
      process.stdout.write(`Timeline, rows and logs: ${evidence}\n`);
      process.exit(1);
    }
    well++;
  }
  if (Date.now() > ends) {
    process.stdout.write(`${well} schedules of faults, all well.\n`);
    break;
  }
}
