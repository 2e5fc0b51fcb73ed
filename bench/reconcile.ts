// The costs of a reconciliation beside the service: seconds, memory, and requests beside the least possible. Once for the
// whole and once for a quarter of it: memory should not grow.
import postgres from 'postgres';
import { startEmbeddedPostgres } from '../src/demo/embedded-postgres.js';
import { table, type Cell } from '../src/render/table.js';
import { median, megabytes } from './figures.js';
import { install, withCleanup } from './installation.js';
import { describeMachine } from './machine.js';
import { startService } from './service.js';

const RUNS = 3;
const PAGE = 1000;
const FROM = Date.UTC(2026, 8, 1) / 1000;
const DAY = 24 * 60 * 60;
const DAYS = 180;
const CONFIGURATION = {
  streams: {
    rooms: {
      from: 'rooms',
      key: 'code',
      type: 'room',
      externalId: 'room_{code}',
      fields: { 'room.name': 'code' },
    },
  },
  reservations: {
    from: 'bookings',
    key: 'id',
    externalId: 'res_{id}',
    begin: 'begins',
    end: 'ends',
    objects: [{ stream: 'rooms', key: 'room' }],
  },
};
const SCHEMA = { types: [{ extId: 'room' }], fields: [{ extId: 'room.name' }] };

/** `npm run bench -- reconcile [bookings]`; default 100 000. Medians of three runs, after one that is not counted. */
export async function benchReconcile([countText = '100000']: readonly string[]): Promise<void> {
  const all = Number(countText);
  await withCleanup(async (onEnd) => {
    const server = await startEmbeddedPostgres();
    onEnd(server.stop);
    const lines: Cell[][] = [];
    let machine = '';
    for (const count of [Math.floor(all / 4), all]) {
      const to = FROM + DAYS * DAY * (count / all); // the same number of bookings a day
      const databaseUrl = await server.createDatabase(`bench_${count}`);
      const reservations = { count, from: FROM, to };
      const service = await startService({ rate: 0, schema: SCHEMA, reservations });
      onEnd(service.stop);
      const slotsync = await install({
        databaseUrl,
        serviceUrl: service.url,
        configuration: CONFIGURATION,
        env: { API_REQUESTS_PER_SECOND: '1000' },
      });
      onEnd(slotsync.close);
      await slotsync.command('migrate');
      const sql = postgres(databaseUrl, { max: 1, onnotice: () => undefined });
      onEnd(() => sql.end({ timeout: 1 }));
      await fill(sql, count, to);
      machine = await describeMachine({ sql });

      const period = [FROM, to].map((time) => new Date(time * 1000).toISOString());
      const command = ['reconcile', '--from', period[0] ?? '', '--to', period[1] ?? ''];
      await slotsync.command(...command);
      const before = await service.requests();
      const figures = [];
      for (let run = 0; run < RUNS; run++) figures.push(await slotsync.command(...command));
      const [agreed] = await sql`SELECT count(*)::int FROM slotsync.reservations WHERE verdict = 'agrees'`;
      lines.push([
        count,
        median(figures.map(({ seconds }) => seconds)).toFixed(2),
        megabytes(Math.max(...figures.map(({ peakBytes }) => peakBytes ?? NaN))),
        ((await service.requests()) - before) / RUNS,
        // The token, the pages, and one page of no cancellations.
        Math.ceil(count / PAGE) + 2,
        Number(agreed?.['count']),
      ]);
    }
    const headings = ['bookings', 'seconds', 'peak memory, MB', 'requests', 'least possible', 'agree'];
    process.stdout.write(`${machine}\n\n${table(headings, lines)}\n`);
  });
}

async function fill(sql: postgres.Sql, count: number, to: number): Promise<void> {
  const begin = `floor(${FROM} + i * ${(to - FROM) / count}::float8)`;
  await sql.unsafe(`
    CREATE TABLE rooms (code text PRIMARY KEY);
    INSERT INTO rooms SELECT i::text FROM generate_series(0, 99) AS i;
    CREATE TABLE bookings (id int PRIMARY KEY, begins timestamptz, ends timestamptz, room text);
    INSERT INTO bookings SELECT i, to_timestamp(${begin}), to_timestamp(${begin} + 3600), (i % 100)::text
      FROM generate_series(0, ${count - 1}) AS i;
    CREATE INDEX ON bookings (begins);
    INSERT INTO slotsync.records (stream, local_key, external_id, object_hash, source_hash, status)
      SELECT 'rooms', code, 'room_' || code, 'x', 1, 'synced' FROM rooms;`);
  await sql`VACUUM ANALYZE`;
}
