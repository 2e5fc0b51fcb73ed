// `npm run bench -- <name>`: figures side by side with what a user would pick instead, on this machine alone.
import { benchPlan } from './plan.js';

const BENCHES: Record<string, (args: readonly string[]) => Promise<void>> = { plan: benchPlan };

const [name = '', ...args] = process.argv.slice(2);
const bench = BENCHES[name];
if (bench) {
  await bench(args);
} else {
  process.stderr.write(`npm run bench -- <name>; there are: ${Object.keys(BENCHES).join(', ')}\n`);
  process.exitCode = 2;
}
