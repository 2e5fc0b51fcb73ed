// The cost of one stream over its first days: requests, seconds, memory and the size of the state, with the quota.
import postgres from 'postgres';
import { startEmbeddedPostgres } from '../src/demo/embedded-postgres.js';
import { table, type Cell } from '../src/render/table.js';
import { megabytes, RATE, showProgress } from './figures.js';
import { install, withCleanup } from './installation.js';
import { describeMachine } from './machine.js';
import { startService } from './service.js';
import { fillThings, THINGS, THINGS_SCHEMA } from './things.js';

/** A request of 1 000 objects takes 320 ms. */
const LATENCY = { latencyMs: 20, latencyPerObjectMs: 0.3 };

/** `npm run bench -- stream [rows]`; default 50 000. One percent of the rows change before the third sync. */
export async function benchStream([rows = '50000']: readonly string[]): Promise<void> {
  const count = Number(rows);
  await withCleanup(async (onEnd) => {
    const server = await startEmbeddedPostgres();
    onEnd(server.stop);
    const costs: Cell[][] = [];
    const sizes: Cell[][] = [];
    let machine = '';
    for (const owns of ['object', 'fields'] as const) {
      const databaseUrl = await server.createDatabase(`bench_${owns}`);
      const sql = postgres(databaseUrl, { max: 1, onnotice: () => undefined });
      onEnd(() => sql.end({ timeout: 1 }));
      await fillThings(sql, count);
      machine = await describeMachine({ sql });
      const service = await startService({ rate: RATE, ...LATENCY, schema: THINGS_SCHEMA });
      onEnd(service.stop);
      const slotsync = await install({
        databaseUrl,
        serviceUrl: service.url,
        configuration: { streams: { things: { ...THINGS.streams.things, owns } } },
      });
      onEnd(slotsync.close);
      await slotsync.command('migrate');

      const measure = async (step: string, command: string) => {
        const before = await service.summary();
        const { seconds, peakBytes } = await slotsync.command(command);
        const after = await service.summary();
        const sent = (endpoint: string) => answered(after, endpoint) - answered(before, endpoint);
        const puts = sent('PUT /v1/objects');
        const finds = sent('POST /v1/objects/find');
        const others = after.requests - before.requests - puts - finds;
        costs.push([owns, step, puts, finds, others, seconds.toFixed(1), megabytes(peakBytes)]);
      };
      await measure('first sync', 'sync');
      const [first] = await sql`SELECT count(*)::int AS rows FROM slotsync.records`;
      await measure('nothing changed', 'sync');
      await sql`UPDATE things SET name = name || '!' WHERE id % 100 = 0`;
      await measure('1 % changed', 'sync');
      await measure('verify', 'verify');

      const [size] = await sql`
        SELECT pg_total_relation_size('slotsync.records') AS records, sum(pg_total_relation_size(oid)) AS state
        FROM pg_class WHERE relkind = 'r' AND relnamespace IN ('slotsync'::regnamespace, 'slotsync_queue'::regnamespace)`;
      sizes.push([
        owns,
        Number(first?.['rows']),
        megabytes(Number(size?.['records'])),
        megabytes(Number(size?.['state'])),
      ]);
      showProgress(sizes.length, 2);
    }
    const headings = ['owns', '', 'PUT', 'find', 'others', 'seconds', 'peak memory, MB'];
    process.stdout.write(`${machine}\n\n${table(headings, costs)}\n\n`);
    process.stdout.write(`${table(['owns', 'records', 'records, MB', 'whole state, MB'], sizes)}\n`);
  });
}

/** Requests to this endpoint that were answered, whatever the status. */
function answered(
  { answers }: { answers: Record<string, Record<number, number>> },
  endpoint: string,
): number {
  return Object.values(answers[endpoint] ?? {}).reduce((sum, each) => sum + each, 0);
}
