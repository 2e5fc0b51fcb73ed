// The costs of seeing what is at a service that is not empty: requests beside the least possible, seconds and memory.
// Beside it the loop one would write: a find of a hundred external ids at a time, which cannot see what has none.
import postgres from 'postgres';
import { startEmbeddedPostgres } from '../src/demo/embedded-postgres.js';
import { table, type Cell } from '../src/render/table.js';
import { megabytes, RATE, showProgress } from './figures.js';
import { measureLoop } from './find-loop.js';
import { install, withCleanup } from './installation.js';
import { describeMachine } from './machine.js';
import { startService } from './service.js';
import { fillThings, PAGE, THINGS, THINGS_SCHEMA } from './things.js';

const LATENCY_MS = 50;
/** The share of the objects that were made by hand: without an external id. */
const BY_HAND = 0.05;

/** `npm run bench -- match [objects…]`; default 10 000, 100 000 and 1 000 000. Once each. */
export async function benchMatch(args: readonly string[]): Promise<void> {
  const counts = args.length > 0 ? args.map(Number) : [10_000, 100_000, 1_000_000];
  await withCleanup(async (onEnd) => {
    const server = await startEmbeddedPostgres();
    onEnd(server.stop);
    const lines: Cell[][] = [];
    let machine = '';
    for (const [index, count] of counts.entries()) {
      const databaseUrl = await server.createDatabase(`bench_${index}`);
      const sql = postgres(databaseUrl, { max: 1, onnotice: () => undefined });
      onEnd(() => sql.end({ timeout: 1 }));
      await fillThings(sql, count);
      machine = await describeMachine({ sql });
      const named = Math.round(count * (1 - BY_HAND));
      const service = await startService({
        rate: RATE,
        latencyMs: LATENCY_MS,
        schema: THINGS_SCHEMA,
        things: { count, named },
      });
      for (const share of [0.5, 1]) {
        const slotsync = await install({
          databaseUrl,
          serviceUrl: service.url,
          configuration: { ...THINGS, verify: { after: '0 5 * * 0', share } },
        });
        onEnd(slotsync.close);
        await slotsync.command('migrate');
        const before = await service.requests();
        const { stdout, seconds, peakBytes } = await slotsync.command(
          'match',
          '--by',
          'thing.name',
          '--json',
        );
        const requests = (await service.requests()) - before;
        const found = readCounts(stdout);
        const name = `slotsync match, share ${share}`;
        lines.push([count, name, requests, count / PAGE, seconds.toFixed(1), megabytes(peakBytes), found]);
      }
      lines.push(...(await measureLoop(service, count)));
      await service.stop();
      showProgress(index + 1, counts.length);
    }
    const headings = ['objects', '', 'requests', 'pages', 'seconds', 'peak memory, MB', 'found'];
    process.stdout.write(`${machine}\n\n${table(headings, lines)}\n`);
  });
}

/** `9 500 equal, 500 matched`. */
function readCounts(stdout: string): string {
  const { types } = JSON.parse(stdout) as {
    types: { streams: { counts: { equal: number; match: number } }[] }[];
  };
  const counts = types[0]?.streams[0]?.counts;
  return `${counts?.equal} equal, ${counts?.match} matched`;
}
