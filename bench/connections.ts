// How many connections to PostgreSQL one worker holds while it plans and sends, by the names the server lists them by.
import postgres from 'postgres';
import { startEmbeddedPostgres } from '../src/demo/embedded-postgres.js';
import { table } from '../src/render/table.js';
import { startSandbox } from '../src/sandbox/sandbox.js';
import { watchConnections } from '../test/support/connections.js';
import { startRedisServer } from '../test/support/redis-server.js';
import { until } from '../test/support/wait.js';
import { install, withCleanup } from './installation.js';
import { describeMachine } from './machine.js';

const ROWS = 8000;
const ROOMS = { from: 'rooms', key: 'code', type: 'room', externalId: 'room_{code}' };
const CONFIGURATION = {
  streams: { rooms: { ...ROOMS, fields: { 'room.name': 'name' }, batchSize: 20, cursor: 'changed_at' } },
};
const SCHEMA = { types: [{ extId: 'room' }], fields: [{ extId: 'room.name' }] };

/** `npm run bench -- connections [folder of another tree]`. Takes about half a minute for each line. */
export async function benchConnections([other]: readonly string[]): Promise<void> {
  await withCleanup(async (onEnd) => {
    const server = await startEmbeddedPostgres();
    onEnd(server.stop);
    const redis = await startRedisServer();
    onEnd(() => redis.stop());
    const rows: string[][] = [];
    for (const tree of [undefined, ...(other === undefined ? [] : [other])])
      for (const redisUrl of [redis.url, undefined]) rows.push(await measure(server, redisUrl, tree));
    const sql = postgres(server.url, { max: 1 });
    process.stdout.write(`${await describeMachine({ sql })}\n\n`);
    await sql.end();
    process.stdout.write(`${table(['queue and quota on', 'most at once', 'of these'], rows)}\n`);
  });
}

async function measure(
  server: { createDatabase(name: string): Promise<string> },
  redisUrl: string | undefined,
  tree: string | undefined,
): Promise<string[]> {
  let most: readonly string[] = [];
  await withCleanup(async (onEnd) => {
    const databaseUrl = await server.createDatabase(
      `bench_${tree ? 'other' : 'own'}_${redisUrl ? 'redis' : 'pg'}`,
    );
    const sql = postgres(databaseUrl, { max: 1, onnotice: () => undefined });
    onEnd(() => sql.end({ timeout: 1 }));
    await sql.unsafe(`
      CREATE TABLE rooms (code text PRIMARY KEY, name text, changed_at timestamptz NOT NULL DEFAULT now());
      INSERT INTO rooms SELECT 'R' || i, 'Room ' || i FROM generate_series(1, ${ROWS}) AS i`);
    const sandbox = await startSandbox({ schema: SCHEMA, rate: 0, latencyMs: 50 });
    onEnd(sandbox.close);
    const env = { REDIS_URL: redisUrl, HTTP_PORT: undefined };
    const slotsync = await install({
      databaseUrl,
      serviceUrl: sandbox.url,
      configuration: CONFIGURATION,
      env,
      tree,
    });
    onEnd(slotsync.close);
    await slotsync.command('migrate');
    await slotsync.command('sync', '--detach');
    const connections = watchConnections(databaseUrl);
    onEnd(connections.stop);
    await slotsync.startWorker();
    const isDone = async () =>
      (await sql`SELECT FROM slotsync.runs WHERE kind = 'sync' AND finished_at IS NOT NULL`).length > 0;
    await until(isDone, { describe: 'the sync to end' });
    most = connections.most();
  });
  const byName = new Map<string, number>();
  for (const name of most) byName.set(name, (byName.get(name) ?? 0) + 1);
  const listed = [...byName].map(([name, count]) => `${count} ${name || '(no name)'}`).join(', ');
  const store = redisUrl === undefined ? 'PostgreSQL' : 'Redis';
  return [tree === undefined ? store : `${store}, ${tree}`, String(most.length), listed];
}
