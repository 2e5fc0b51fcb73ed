// The demo: a real PostgreSQL with a sample university, a sandbox with a strict quota, and the commands an engineer
// would type, run as child processes. Everything is removed afterwards.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { isDeepStrictEqual } from 'node:util';
import postgres from 'postgres';
import { startEmbeddedPostgres } from './embedded-postgres.js';
import { universitySchema } from './sync.config.js';
import { changeUniversity, DIFFERING_BOOKINGS, generateReservations, loadUniversity } from './university.js';
import { startSandbox, type Sandbox } from '../sandbox/sandbox.js';
import { table } from '../report/format.js';
import { printJson, printLine } from '../report/print.js';

export interface DemoOptions {
  keep?: boolean;
  json?: boolean;
  seed: number;
}

const RATE = 20;
const LATENCY_MS = 40;
const UNCHANGED = 'nothing changed';

/** What the service received during one command; `throttled`: 429 answers. In the order of the printed columns. */
type Act = Record<'seconds' | 'requests' | 'puts' | 'objects' | 'throttled', number> & { name: string };

/** Runs the demo and prints it. `cli` is this program's entry file. Returns whether every result was as expected. */
export async function playDemo(cli: string, { keep, json, seed }: DemoOptions): Promise<boolean> {
  const say = json ? () => undefined : printLine;
  const closers: (() => Promise<unknown>)[] = [];
  const interrupted = new AbortController();
  const onSignal = () => interrupted.abort();
  process.on('SIGINT', onSignal);
  process.on('SIGTERM', onSignal);
  try {
    say('Starting PostgreSQL and a sample university in it …');
    const server = await startEmbeddedPostgres();
    closers.push(server.stop);
    const url = await server.createDatabase('university');
    const sql = postgres(url, { max: 1, onnotice: () => undefined });
    closers.push(() => sql.end({ timeout: 1 }));
    const counts = await loadUniversity(sql, { seed });
    const loaded = Object.entries(counts).map(([name, rows]) => `${rows} ${name.replace('_', ' ')}`);
    say(`  ${loaded.join(', ')}`);

    say(
      `Starting the sandbox, which simulates the service: ${RATE} requests in any second, ${LATENCY_MS} ms latency …`,
    );
    const sandbox = await startSandbox({
      rate: RATE,
      window: 'sliding',
      latencyMs: LATENCY_MS,
      jitterMs: LATENCY_MS / 2,
      schema: universitySchema,
    });
    closers.push(() => sandbox.close());

    // Every setting is given, so that the demo uses none of a `.env` in this folder.
    const env = {
      MIRROR_DATABASE_URL: url,
      STATE_DATABASE_URL: url,
      REDIS_URL: '',
      REDIS_URL_FILE: '',
      API_BASE_URL: sandbox.url,
      API_KEY: 'sandbox-key',
      API_KEY_FILE: '',
      API_ORGANIZATION_ID: 'demo',
      API_REGION: '',
      HTTP_PORT: '',
      LOG_LEVEL: '',
      API_REQUESTS_PER_SECOND: String(RATE),
      SLOTSYNC_CONFIG: fileURLToPath(new URL('./sync.config.js', import.meta.url)),
    };
    const run = (...args: string[]) => {
      say(`\n$ slotsync ${args.join(' ')}`);
      return runCommand(cli, args, env, { signal: interrupted.signal, silent: json ?? false });
    };
    const acts: Act[] = [];
    let most = 0;
    const sync = async (name: string) => {
      sandbox.clearArrivals();
      const before = { at: performance.now(), refused: sandbox.refused() };
      await run('sync');
      const arrivals = sandbox.arrivals();
      const puts = arrivals.filter(({ method }) => method === 'PUT');
      acts.push({
        name,
        seconds: Number(((performance.now() - before.at) / 1000).toFixed(1)),
        requests: arrivals.length,
        puts: puts.length,
        objects: puts.reduce((sum, { objects }) => sum + (objects ?? 0), 0),
        throttled: sandbox.refused() - before.refused,
      });
      most = Math.max(most, sandbox.mostInAnySecond());
    };

    const codes = [await run('migrate'), await run('check'), await run('plan')];
    await sync('first sync');
    say('\nNothing has changed in the mirror, so a second sync sends no write:');
    await sync(UNCHANGED);
    const changes = await changeUniversity(sql);
    say('\nNow a few rows change:');
    for (const { stream, what } of changes) say(`  ${stream}: ${what}`);
    await sync('rows changed');
    codes.push(await run('status'));

    say('\nNow the bookings. At the service some were moved, cancelled and added:');
    const restored = await addReservations(sandbox, sql);
    codes.push(await run('reconcile'));
    say(`\nOne of the cancelled bookings is restored at the service:`);
    sandbox.restoreReservation(`res_${restored}`);
    codes.push(await run('reconcile'), await run('explain', 'reservations', String(restored)));
    const areFound = await areBookingsFound(sql);

    say('\nWhat happened, from the log of the service:\n');
    say(
      table(
        ['', 'seconds', 'requests', 'PUT requests', 'objects sent', 'refused by quota'],
        acts.map((act) => Object.values(act)),
      ),
    );
    say(`\nMost requests in any second: ${most}; allowed: ${RATE}.\n`);
    say('Some rows are wrong on purpose. `slotsync failures` gives the reason for each:\n');
    codes.push(await run('failures'));
    const second = acts.find(({ name }) => name === UNCHANGED);
    const isExpected =
      codes.every((code) => code === 0) && second?.puts === 0 && areFound && sandbox.refused() === 0;
    const settings = keep ? env : undefined;
    if (json) printJson({ fine: isExpected, allowed: RATE, mostInAnySecond: most, acts, settings });
    say(isExpected ? '\nEvery result is as expected.' : '\nSome results are not as expected; see above.');
    if (keep) {
      say('\nDatabase and sandbox run until Ctrl-C. In another terminal:\n');
      for (const [name, value] of Object.entries(env)) say(`  export ${name}='${value}'`);
      say(`\n  node ${cli} status`);
      // Every user of the machine can list the arguments of psql.
      const { password } = new URL(url);
      say(
        `  PGPASSWORD='${password}' psql '${url.replace(`:${password}@`, '@')}' -c 'SELECT * FROM slotsync.records LIMIT 5'`,
      );
      say(`  curl ${sandbox.url}/sandbox/summary`);
      if (!interrupted.signal.aborted) await once(interrupted.signal, 'abort');
    } else {
      say('To look around in it: npm run demo -- --keep');
      say('To sync your own database: docs/configuration.md');
    }
    return isExpected;
  } catch (error) {
    if (!interrupted.signal.aborted) throw error;
    say('\nInterrupted.');
    return false;
  } finally {
    process.off('SIGINT', onSignal);
    process.off('SIGTERM', onSignal);
    for (const close of closers.reverse()) await close();
  }
}

/** Adds the bookings to the service, with changes made there. Returns the one to be restored. */
async function addReservations(sandbox: Sandbox, sql: postgres.Sql): Promise<number> {
  const { add, cancel } = await generateReservations(sql);
  for (const reservation of add) sandbox.addReservation(reservation);
  for (const extId of cancel) sandbox.cancelReservation(extId, { extId });
  return DIFFERING_BOOKINGS.cancelledThere[0];
}

/** Whether reconcile found exactly these changes. */
async function areBookingsFound(sql: postgres.Sql): Promise<boolean> {
  const { movedThere, otherRoomThere, missingThere, cancelledThere, cancelledHere } = DIFFERING_BOOKINGS;
  const expected: Record<string, number> = {
    differs: movedThere.length + otherRoomThere.length,
    missing_there: missingThere.length,
    cancelled_there: cancelledThere.length - 1,
    restored_there: 1,
    cancelled_here: cancelledHere.length,
    unknown_here: 1,
  };
  const rows = await sql<{ verdict: string; count: number }[]>`
    SELECT verdict, count(*)::int AS count FROM slotsync.reservations WHERE verdict <> 'agrees' GROUP BY verdict`;
  return isDeepStrictEqual(Object.fromEntries(rows.map(({ verdict, count }) => [verdict, count])), expected);
}

/** Runs one command as a child process. Returns its exit code. */
async function runCommand(
  cli: string,
  args: readonly string[],
  env: Record<string, string>,
  { signal, silent }: { signal: AbortSignal; silent: boolean },
): Promise<number> {
  signal.throwIfAborted();
  const child = spawn(process.execPath, [cli, ...args], {
    stdio: silent ? 'ignore' : 'inherit',
    env: { PATH: process.env.PATH, HOME: process.env.HOME, TERM: process.env.TERM, ...env },
  });
  const [code] = (await once(child, 'exit')) as [number | null];
  signal.throwIfAborted();
  return code ?? 1;
}
