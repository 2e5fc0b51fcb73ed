// The costs of reading back everything the service holds: requests beside the least possible, seconds and memory; and the same
// to make the records of a lost state again. Beside it the loop one would write: a find of a hundred external ids at a time,
// which compares nothing and does not see objects that are nobody's record.
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

/** `npm run bench -- verify [objects…]`; default 10 000, 100 000 and 1 000 000. Once each, with the whole quota. */
export async function benchVerify(args: readonly string[]): Promise<void> {
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
      const things = { count, named: count };
      const quota = { rate: RATE, latencyMs: LATENCY_MS };
      const service = await startService({ ...quota, schema: THINGS_SCHEMA, things });
      onEnd(service.stop);
      const slotsync = await install({
        databaseUrl,
        serviceUrl: service.url,
        configuration: { ...THINGS, verify: { after: '0 5 * * 0', share: 1 } },
      });
      onEnd(slotsync.close);
      await slotsync.command('migrate');
      for (const args of [['verify', '--adopt'], ['verify']]) {
        const before = await service.requests();
        const { stdout, seconds, peakBytes } = await slotsync.command(...args, '--json');
        const requests = (await service.requests()) - before;
        const name = `slotsync ${args.join(' ')}`;
        lines.push([
          count,
          name,
          requests,
          count / PAGE,
          seconds.toFixed(1),
          megabytes(peakBytes),
          readSeen(stdout),
        ]);
        // A record that was written a moment before it is read would be asked for twice if it drifted.
        await sql`VACUUM ANALYZE slotsync.records`;
      }
      lines.push(...(await measureLoop(service, count)));
      showProgress(index + 1, counts.length);
    }
    const headings = ['objects', '', 'requests', 'pages', 'seconds', 'peak memory, MB', 'seen'];
    process.stdout.write(`${machine}\n\n${table(headings, lines)}\n`);
  });
}

/** `10000 compared`, or `10000 adopted`. */
function readSeen(stdout: string): string {
  const { streams } = JSON.parse(stdout) as { streams: { compared?: number; equal?: number }[] };
  const [things] = streams;
  return things?.compared === undefined ? `${things?.equal} adopted` : `${things.compared} compared`;
}
