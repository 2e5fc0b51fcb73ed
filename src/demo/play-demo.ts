// The demo: a real PostgreSQL with a sample university, a sandbox with a strict quota, and the commands an engineer
// would type, run as child processes, with what each shows in a few lines. Everything is removed afterwards.
import { randomBytes } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { isDeepStrictEqual } from 'node:util';
import postgres from 'postgres';
import { createCommands } from './demo-commands.js';
import { findFreePort, startEmbeddedPostgres } from './embedded-postgres.js';
import { universitySchema } from './sync.config.js';
import { DIFFERING_BOOKINGS, generateReservations, loadUniversity } from './university.js';
import { startSandbox, type Sandbox } from '../sandbox/sandbox.js';
import { formatDuration, formatNumber, plural } from '../format.js';
import { printJson, printLine } from '../report/print.js';

export interface DemoOptions {
  keep?: boolean;
  json?: boolean;
  seed: number;
}

const RATE = 20;
const LATENCY_MS = 40;
/** A row whose credits are no number, and a room that changes. */
const BAD_COURSE = 'MAT888';
const ROOM = 'A101';
const SEATS = 99;
/** A booking of each is shown. */
const VERDICTS_SHOWN = ['moved at the service', 'cancelled at the service', 'not at the service'];

/** What the service received during one command; `throttled`: 429 answers. */
interface Step {
  name: string;
  seconds: number;
  requests: number;
  puts: number;
  objects: number;
  throttled: number;
}

/** Runs the demo and prints it. `cli` is this program's entry file. Returns whether every result was as expected. */
export async function playDemo(cli: string, { keep, json = false, seed }: DemoOptions): Promise<boolean> {
  const say = json ? () => undefined : printLine;
  const closers: (() => Promise<unknown>)[] = [];
  const interrupted = new AbortController();
  const onSignal = () => interrupted.abort();
  process.on('SIGINT', onSignal);
  process.on('SIGTERM', onSignal);
  try {
    say(
      `A sample university in a PostgreSQL of its own, and a sandbox that simulates the service: ${RATE} requests in any second, ${LATENCY_MS} ms each.`,
    );
    const server = await startEmbeddedPostgres();
    closers.push(server.stop);
    const url = await server.createDatabase('university');
    const sql = postgres(url, { max: 1, onnotice: () => undefined });
    closers.push(() => sql.end({ timeout: 1 }));
    await loadUniversity(sql, { seed });
    const sandbox = await startSandbox({
      rate: RATE,
      window: 'sliding',
      latencyMs: LATENCY_MS,
      jitterMs: LATENCY_MS / 2,
      schema: universitySchema,
    });
    closers.push(() => sandbox.close());

    // Every setting is given, so that the demo uses none of a `.env` in this folder.
    const settings = {
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
      HTTP_HOST: '',
      HTTP_TOKEN: randomBytes(12).toString('hex'),
      HTTP_TOKEN_FILE: '',
      TIMEZONE: 'Europe/Stockholm',
      LOG_LEVEL: '',
      API_REQUESTS_PER_SECOND: String(RATE),
      SLOTSYNC_CONFIG: fileURLToPath(new URL('./sync.config.js', import.meta.url)),
    };
    const commands = createCommands({ cli, settings, signal: interrupted.signal });
    closers.push(commands.stop);

    const httpPort = await findFreePort();
    const story = await tell({ sql, sandbox, commands, say, httpPort });
    const { steps, checks } = story;
    const failed = Object.entries(checks).flatMap(([what, isFine]) => (isFine ? [] : [what]));
    const isExpected = failed.length === 0;
    if (json) {
      const kept = keep ? { ...settings, HTTP_PORT: String(httpPort) } : undefined;
      printJson({
        fine: isExpected,
        failed,
        allowed: RATE,
        mostInAnySecond: story.most,
        steps,
        settings: kept,
      });
    }
    say(isExpected ? '\nEvery result is as expected.' : `\nNot as expected: ${failed.join(', ')}.`);
    if (keep) {
      say(`\nUntil Ctrl-C: the operator's page, http://127.0.0.1:${httpPort}/`);
      say(`  to act on it, its token: ${settings.HTTP_TOKEN}`);
      say(`the log of the service, ${sandbox.url}/sandbox/summary`);
      say('and the database, with every command, in another terminal:\n');
      for (const [name, value] of Object.entries(settings))
        if (value !== '' && !name.startsWith('HTTP')) say(`  export ${name}='${value}'`);
      say(`  node ${cli} status --watch`);
      await commands.untilInterrupted();
    } else {
      say('To look around in it: npm run demo -- --keep');
      say('To sync your own database: README.md, "Five minutes to your own database"');
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

/** The story in order. Returns what the service received, and whether each result was as expected. */
async function tell({
  sql,
  sandbox,
  commands: { run, startWorker, until },
  say,
  httpPort,
}: {
  sql: postgres.Sql;
  sandbox: Sandbox;
  commands: ReturnType<typeof createCommands>;
  say: (text: string) => void;
  httpPort: number;
}) {
  const steps: Step[] = [];
  const checks: Record<string, boolean> = {};
  let most = 0;
  let heading = 0;
  const begin = (title: string) => say(`\n${++heading}. ${title}`);
  const type = (text: string) => say(`   $ ${text}`);
  const show = (...lines: string[]) => lines.forEach((line) => say(`   ${line}`));
  const command = (...args: string[]) => {
    type(`slotsync ${args.join(' ')}`);
    return run(args);
  };
  const change = async (text: string) => {
    type(`psql -c "${text}"`);
    await sql.unsafe(text);
    return performance.now();
  };
  const sync = async (name: string) => {
    sandbox.clearArrivals();
    const startedAt = performance.now();
    const { code, stdout } = await command('sync');
    const arrivals = sandbox.arrivals();
    const puts = arrivals.filter(({ method }) => method === 'PUT');
    const step = {
      name,
      seconds: Number(((performance.now() - startedAt) / 1000).toFixed(1)),
      requests: arrivals.length,
      puts: puts.length,
      objects: puts.reduce((sum, { objects }) => sum + (objects ?? 0), 0),
      throttled: sandbox.refused(),
    };
    steps.push(step);
    most = Math.max(most, sandbox.mostInAnySecond());
    return { code, stdout, ...step };
  };
  const activeStaff = () =>
    sandbox.objects().filter(({ typeId, active }) => typeId === 'person.staff' && active).length;

  await run(['migrate']);
  begin('What would be sent? The service is empty');
  const plan = await command('plan');
  const creates = await run(['plan', '--json']);
  const planned = (
    JSON.parse(creates.stdout) as { streams: { stream: string; counts: { create: number } }[] }
  ).streams;
  show(
    `To create: ${planned.map(({ stream, counts }) => `${formatNumber(counts.create)} ${stream.replace('_', ' ')}`).join(', ')}.`,
    lineOf(plan.stdout, 'At most '),
  );
  checks['a plan sends nothing'] = sandbox.objects().length === 0;

  begin('The first sync, at the whole quota');
  const first = await sync('first sync');
  show(
    `${formatNumber(first.objects)} objects in ${first.puts} writes, ${first.seconds} s. Most requests in any second: ${most} of ${RATE}; refused: ${first.throttled}.`,
    `${plural(planned.reduce((sum, { counts }) => sum + counts.create, 0) - sandbox.objects().length, 'row is', 'rows are')} wrong on purpose, and stopped nothing else.`,
  );
  checks['the quota is kept'] = first.throttled === 0 && most <= RATE;

  begin('A second sync: nothing has changed');
  const second = await sync('nothing changed');
  show(
    `${plural(second.puts, 'write')} sent, in ${second.seconds} s. Both sides were compared in the databases.`,
  );
  checks['a second sync sends nothing'] = second.puts === 0;

  begin('A worker sends a change as it happens');
  checks['triggers are installed'] = (await command('triggers', 'install', 'rooms', 'courses')).code === 0;
  type('slotsync worker &');
  await startWorker(httpPort);
  const changedAt = await change(`UPDATE campus.rooms SET seats = ${SEATS} WHERE room_code = '${ROOM}'`);
  await until(() => valuesOf(sandbox, `room_${ROOM}`, 'room.seats').includes(String(SEATS)));
  show(`Room ${ROOM} had ${SEATS} seats at the service ${since(changedAt)} later.`);

  begin('A bad row: why, what to do, and done');
  const failures = await command('failures', 'courses');
  show(...blockOf(failures.stdout, `'${BAD_COURSE}'`));
  const mendedAt = await change(
    `UPDATE campus.courses SET credits = '7.5' WHERE course_code = '${BAD_COURSE}'`,
  );
  await until(() => valuesOf(sandbox, `course_${BAD_COURSE}`, 'course.credits').includes('7.5'));
  show(`The course was at the service ${since(mendedAt)} later, without a further command.`);

  begin('Bookings: what the service made of them');
  await addReservations(sandbox, sql);
  const reconcile = await command('reconcile');
  const bookings = reconcile.stdout.split('\n').filter((line) => line.startsWith('booking '));
  const shown = VERDICTS_SHOWN.flatMap(
    (verdict) => bookings.find((line) => line.includes(`: ${verdict}`)) ?? [],
  );
  show(
    ...shown,
    `and ${bookings.length - shown.length} more that do not agree. Bookings are only read: an operator decides.`,
  );
  checks['every booking that differs is found'] = await areBookingsFound(sql);

  begin('Somebody deletes half of the staff by accident');
  const staffBefore = activeStaff();
  await change('DELETE FROM campus.staff WHERE id % 2 = 0');
  const held = await sync('half of the staff is deleted');
  show(lineOf(held.stdout, 'Held: '));
  show('Nobody was retired at the service. An operator approves it, or restores the rows.');
  checks['a mass deletion is held'] = held.code === 3 && activeStaff() >= staffBefore;
  return { steps, checks, most };
}

const since = (at: number) => formatDuration((performance.now() - at) / 1000);

const lineOf = (output: string, beginning: string) =>
  output.split('\n').find((line) => line.startsWith(beginning)) ?? `(no line begins with ${beginning})`;

/** The lines about one thing: from the one that names it to the next empty one, or one that is not indented. */
function blockOf(output: string, name: string): string[] {
  const [first = '', ...rest] = output
    .slice(output.indexOf(output.split('\n').find((line) => line.includes(name)) ?? ''))
    .split('\n');
  const end = rest.findIndex((line) => !line.startsWith(' '));
  return [first, ...rest.slice(0, end < 0 ? rest.length : end)];
}

function valuesOf(sandbox: Sandbox, extId: string, fieldId: string): readonly string[] {
  return sandbox.object(extId)?.fields.find((field) => field.fieldId === fieldId)?.values ?? [];
}

/** Adds the bookings to the service, with changes made there. */
async function addReservations(sandbox: Sandbox, sql: postgres.Sql): Promise<void> {
  const { add, cancel } = await generateReservations(sql);
  for (const reservation of add) sandbox.addReservation(reservation);
  for (const extId of cancel) sandbox.cancelReservation(extId, { extId });
}

/** Whether reconcile found exactly these changes. */
async function areBookingsFound(sql: postgres.Sql): Promise<boolean> {
  const { movedThere, otherRoomThere, missingThere, cancelledThere, cancelledHere } = DIFFERING_BOOKINGS;
  const expected: Record<string, number> = {
    differs: movedThere.length + otherRoomThere.length,
    missing_there: missingThere.length,
    cancelled_there: cancelledThere.length,
    cancelled_here: cancelledHere.length,
    unknown_here: 1,
  };
  const rows = await sql<{ verdict: string; count: number }[]>`
    SELECT verdict, count(*)::int AS count FROM slotsync.reservations WHERE verdict <> 'agrees' GROUP BY verdict`;
  return isDeepStrictEqual(Object.fromEntries(rows.map(({ verdict, count }) => [verdict, count])), expected);
}
