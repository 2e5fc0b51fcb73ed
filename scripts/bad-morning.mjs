// The demo's university on a bad morning, for pictures and captures: a building that the service refuses and the records
// that wait for it, an object that somebody changed at the service, and retirements that are held.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import postgres from 'postgres';
import { startEmbeddedPostgres } from '../dist/demo/embedded-postgres.js';
import { universitySchema } from '../dist/demo/sync.config.js';
import { generateReservations, loadUniversity } from '../dist/demo/university.js';
import { startSandbox } from '../dist/sandbox/sandbox.js';

const CLI = fileURLToPath(new URL('../dist/cli.js', import.meta.url));
const CONFIG = fileURLToPath(new URL('../dist/demo/sync.config.js', import.meta.url));

/**
 * Starts PostgreSQL and a sandbox; `begin` is what happens before the first sync. Whatever is opened is pushed to
 * `closers`, so that the caller closes it even when this fails.
 */
export async function playBadMorning({ closers, settings = {}, sandboxPort = 0, begin }) {
  const server = await startEmbeddedPostgres();
  closers.push(server.stop);
  const url = await server.createDatabase('university');
  const sql = postgres(url, { max: 1, onnotice: () => undefined });
  closers.push(() => sql.end({ timeout: 1 }));
  await loadUniversity(sql, { seed: 1 });
  const sandbox = await startSandbox({
    rate: 20,
    window: 'sliding',
    latencyMs: 20,
    port: sandboxPort,
    schema: universitySchema,
  });
  closers.push(() => sandbox.close());
  const env = {
    PATH: process.env['PATH'],
    MIRROR_DATABASE_URL: url,
    API_BASE_URL: sandbox.url,
    API_KEY: 'sandbox-key',
    API_ORGANIZATION_ID: 'demo',
    SLOTSYNC_CONFIG: CONFIG,
    TIMEZONE: 'Europe/Stockholm',
    LOG_LEVEL: 'warn',
    ...settings,
  };
  const start = (...args) =>
    spawn(process.execPath, [CLI, ...args], { env, stdio: process.env['SHOW'] ? 'inherit' : 'ignore' });
  const run = async (...args) => once(start(...args), 'exit');
  const morning = { sql, sandbox, env, cli: CLI, start, run };

  await run('migrate');
  await begin?.(morning);
  sandbox.refuseObject('building_K', { status: 400, message: 'the campus Kemi is closed in this period' });
  await run('sync');
  const { add, cancel } = await generateReservations(sql);
  for (const reservation of add) sandbox.addReservation(reservation);
  for (const extId of cancel) sandbox.cancelReservation(extId, { extId });
  await run('reconcile');
  sandbox.changeObject('room_A101', { fields: [{ fieldId: 'room.seats', values: ['12'] }] });
  await run('verify');
  await sql`UPDATE campus.staff SET left_on = current_date WHERE id % 4 = 0 AND left_on IS NULL`;
  await run('sync', 'staff');
  return morning;
}
