// The main job, shown: a real PostgreSQL, a sample university, the service played with a strict quota, and the
// commands an engineer would type, run as they are. Everything is gone afterwards.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import postgres from 'postgres';
import { startEmbeddedPostgres } from '../demo/embedded-postgres.js';
import { universitySchema } from '../demo/sync.config.js';
import {
  changeUniversity,
  DIFFERING_BOOKINGS,
  generateReservations,
  loadUniversity,
} from '../demo/university.js';
import { startSandbox, type Sandbox } from '../sandbox/sandbox.js';
import { EXIT, wholeNumber } from './command.js';
import { printJson, printLine, table } from '../report/format.js';

export function addDemo(program: Command): void {
  program
    .command('demo')
    .description(
      'sync a sample university into the sandbox, on a PostgreSQL of its own; needs nothing but Node',
    )
    .option('--keep', 'leave database and sandbox up until Ctrl-C, to look around')
    .option('--seed <number>', 'another university', wholeNumber, 1)
    .option('--json', 'print one JSON document instead of text')
    .action(async (options: DemoOptions) => {
      const fine = await runDemo(process.argv[1] ?? '', options);
      process.exitCode = fine ? EXIT.done : EXIT.failed;
    });
}

interface DemoOptions {
  keep?: boolean;
  json?: boolean;
  seed: number;
}

const RATE = 20;
const LATENCY_MS = 40;
const UNCHANGED = 'nothing changed';

interface Act {
  name: string;
  seconds: number;
  requests: number;
  puts: number;
  objects: number;
  /** 429 answers. */
  throttled: number;
}

/** Plays the demo on standard output. `cli` is this program's entry file. Returns whether all went as it should. */
async function runDemo(cli: string, { keep, json, seed }: DemoOptions): Promise<boolean> {
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
    say(
      `  ${Object.entries(counts)
        .map(([table, rows]) => `${rows} ${table.replace('_', ' ')}`)
        .join(', ')}`,
    );

    say(
      `Starting the sandbox, which plays the service: ${RATE} requests in any second, ${LATENCY_MS} ms latency …`,
    );
    const sandbox = await startSandbox({
      rate: RATE,
      window: 'sliding',
      latencyMs: LATENCY_MS,
      jitterMs: LATENCY_MS / 2,
      schema: universitySchema,
    });
    closers.push(() => sandbox.close());

    // Every setting has its say here, so that none of a `.env` in this folder reaches the demo.
    const env = {
      MIRROR_DATABASE_URL: url,
      STATE_DATABASE_URL: url,
      REDIS_URL: '',
      API_BASE_URL: sandbox.url,
      API_KEY: 'sandbox-key',
      API_KEY_FILE: '',
      API_ORGANIZATION_ID: 'demo',
      API_REGION: '',
      HTTP_PORT: '',
      LOG_LEVEL: '',
      API_REQUESTS_PER_SECOND: String(RATE),
      SLOTSYNC_CONFIG: fileURLToPath(new URL('../demo/sync.config.js', import.meta.url)),
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
        seconds: (performance.now() - before.at) / 1000,
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

    say('\nNow the bookings. At the service people have moved, cancelled and made some:');
    const restored = await bookThere(sandbox, sql);
    codes.push(await run('reconcile'));
    say(`\nOne of the cancelled is restored there, and nothing else happens:`);
    sandbox.restoreReservation(`res_${restored}`);
    codes.push(await run('reconcile'), await run('explain', 'reservations', String(restored)));
    const areFound = await areBookingsFound(sql);

    say('\nWhat happened, by the service’s own log:\n');
    say(
      table(
        ['', 'seconds', 'requests', 'PUT requests', 'objects sent', 'refused by quota'],
        acts.map(({ name, seconds, requests, puts, objects, throttled }) => [
          name,
          Number(seconds.toFixed(1)),
          requests,
          puts,
          objects,
          throttled,
        ]),
      ),
    );
    say(`\nMost requests in any second: ${most}; allowed: ${RATE}.\n`);
    say('Not every row was good, on purpose. `slotsync failures` says why each is not there:\n');
    codes.push(await run('failures'));
    const second = acts.find(({ name }) => name === UNCHANGED);
    const fine =
      codes.every((code) => code === 0) && second?.puts === 0 && areFound && sandbox.refused() === 0;
    if (json)
      printJson({ fine, allowed: RATE, mostInAnySecond: most, acts, ...(keep ? { settings: env } : {}) });
    say(fine ? '\nAll as it should be.' : '\nSomething is not as it should be; see above.');
    if (keep) {
      say('\nDatabase and sandbox stay up until Ctrl-C. In another terminal:\n');
      for (const [name, value] of Object.entries(env)) say(`  export ${name}='${value}'`);
      say(`\n  node ${cli} status`);
      say(`  psql '${url}' -c 'SELECT * FROM slotsync.records LIMIT 5'`);
      say(`  curl ${sandbox.url}/sandbox/summary`);
      if (!interrupted.signal.aborted) await once(interrupted.signal, 'abort');
    } else {
      say('To look around in it: npm run demo -- --keep');
      say('To sync your own database: docs/configuration.md');
    }
    return fine;
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

/** Puts the bookings at the service, with what people have done to them there. Returns the one to be restored. */
async function bookThere(sandbox: Sandbox, sql: postgres.Sql): Promise<number> {
  const { add, cancel } = await generateReservations(sql);
  for (const reservation of add) sandbox.addReservation(reservation);
  for (const extId of cancel) sandbox.cancelReservation(extId, { extId });
  return DIFFERING_BOOKINGS.cancelledThere[0];
}

/** Whether reconciling found exactly what was done. */
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
  return (
    rows.length === Object.keys(expected).length &&
    rows.every(({ verdict, count }) => expected[verdict] === count)
  );
}

/** Runs one command of this program as a user would, with its output shown. Returns its exit code. */
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
