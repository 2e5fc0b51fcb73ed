// `npm run bench -- <name>`: figures side by side with what a user would pick instead, on this machine alone.
import { benchConnections } from './connections.js';
import { benchFar } from './far.js';
import { benchInbox } from './inbox.js';
import { benchLatency } from './latency.js';
import { benchLimiter } from './limiter.js';
import { benchLoad } from './load.js';
import { benchMatch } from './match.js';
import { benchOrganizations } from './organizations.js';
import { benchPipeline } from './pipeline.js';
import { benchPlan } from './plan.js';
import { benchReconcile } from './reconcile.js';
import { benchRecovery } from './recovery.js';
import { benchSnapshot } from './snapshot.js';
import { benchStartUp } from './start-up.js';
import { benchStream } from './stream.js';
import { benchVerify } from './verify.js';
import { benchWorkers } from './workers.js';

const BENCHES: Record<string, (args: readonly string[]) => Promise<void>> = {
  connections: benchConnections,
  far: benchFar,
  inbox: benchInbox,
  latency: benchLatency,
  limiter: benchLimiter,
  load: benchLoad,
  match: benchMatch,
  organizations: benchOrganizations,
  pipeline: benchPipeline,
  plan: benchPlan,
  reconcile: benchReconcile,
  recovery: benchRecovery,
  snapshot: benchSnapshot,
  'start-up': benchStartUp,
  stream: benchStream,
  verify: benchVerify,
  workers: benchWorkers,
};

const [name = '', ...args] = process.argv.slice(2);
const bench = BENCHES[name];
if (bench) {
  await bench(args);
} else {
  process.stderr.write(`npm run bench -- <name>; there are: ${Object.keys(BENCHES).join(', ')}\n`);
  process.exitCode = 2;
}
