// One measurement of the reconcile benchmark in a process of its own, so that its memory is its own: `slotsync`, or
// what one would write first, both sides read whole into two maps. Prints its figures as JSON.
import { pino } from 'pino';
import postgres from 'postgres';
import { checkConfiguration } from '../src/config-file.js';
import { createDestination } from '../src/destination/destination.js';
import { createMirror } from '../src/mirror/mirror.js';
import { openState } from '../src/state/database.js';
import { reconcile } from '../src/sync/reconcile/reconcile.js';
import { apiOf, UNLIMITED } from './no-quota.js';

const [way = 'slotsync', databaseUrl = '', serviceUrl = '', from = '0', to = '0'] = process.argv.slice(2);
const window = { from: Number(from) * 1000, to: Number(to) * 1000 };

const configuration = checkConfiguration({
  streams: {
    rooms: {
      from: 'rooms',
      key: 'code',
      type: 'room',
      externalId: 'room_{code}',
      fields: {},
      owns: 'object',
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
});
const log = pino({ level: 'silent' });
const destination = createDestination({
  api: apiOf(serviceUrl),
  limiter: UNLIMITED,
  log,
  ...configuration.service,
});
const mirror = createMirror({ url: databaseUrl });
const state = openState({ url: databaseUrl });

let peak = 0;
const watch = setInterval(() => (peak = Math.max(peak, process.memoryUsage.rss())), 5);
const startedAt = performance.now();
const cpuBefore = process.cpuUsage();
const verdicts = way === 'slotsync' ? await ours() : await twoMaps();
const cpu = process.cpuUsage(cpuBefore);
const seconds = (performance.now() - startedAt) / 1000;
clearInterval(watch);
peak = Math.max(peak, process.memoryUsage.rss());
await Promise.all([destination.close(), mirror.close(), state.close()]);
const figures = {
  seconds,
  cpuSeconds: (cpu.user + cpu.system) / 1e6,
  peak,
  requests: destination.requests(),
  verdicts,
};
process.stdout.write(`${JSON.stringify(figures)}\n`);

async function ours(): Promise<Record<string, number>> {
  const { reservations } = configuration;
  if (!reservations) throw new Error('no reservations');
  return (await reconcile({ mirror, destination, state, reservations, startedBy: 'command', log }, window))
    .verdicts;
}

/** Both sides whole in memory, compared by begin, end and room, and every verdict written, a thousand at a time. */
async function twoMaps(): Promise<Record<string, number>> {
  const period = { from: Number(from), to: Number(to) };
  const context = { lane: 'sync' } as const;
  const found = await destination.findReservations({ window: period }, context);
  await destination.findCancellations({ window: period }, context);
  const there = new Map('results' in found ? found.results.map((one) => [one.extId ?? '', one]) : []);
  const sql = postgres(databaseUrl, { max: 1, onnotice: () => undefined });
  const here = new Map(
    (await sql<{ id: number; begins: Date; ends: Date; room: string }[]>`SELECT * FROM bookings`).map(
      (row) => [`res_${row.id}`, row],
    ),
  );
  const rows: { key: string; verdict: string }[] = [];
  for (const [extId, { id, begins, ends, room }] of here) {
    const other = there.get(extId);
    const isSame =
      other?.begin === begins.getTime() &&
      other.end === ends.getTime() &&
      other.objects[0]?.objectId === `room_${room}`;
    rows.push({ key: String(id), verdict: other ? (isSame ? 'agrees' : 'differs') : 'missing_there' });
  }
  for (let at = 0; at < rows.length; at += 1000) {
    await sql`
      INSERT INTO slotsync.reservations (key, verdict, seen_at)
      SELECT key, verdict, now() FROM jsonb_to_recordset(${JSON.stringify(rows.slice(at, at + 1000))}::text::jsonb) AS r(key text, verdict text)
      ON CONFLICT (key) DO UPDATE SET verdict = excluded.verdict, seen_at = excluded.seen_at`;
  }
  await sql.end({ timeout: 1 });
  return { agrees: rows.filter(({ verdict }) => verdict === 'agrees').length };
}
