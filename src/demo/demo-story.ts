// The story of the demo: the commands that an engineer would type, in order, each with a few lines of its results.
import { isDeepStrictEqual } from 'node:util';
import type postgres from 'postgres';
import type { Sandbox } from '../sandbox/sandbox.js';
import { formatDuration, formatNumber, plural } from '../text/format.js';
import type { createCommands } from './demo-commands.js';
import { DIFFERING_BOOKINGS, generateReservations } from './university.js';

/** A course whose credits are not a number, and a room whose seats change. */
const BAD_COURSE = 'MAT888';
const ROOM = 'A101';
const SEATS = 99;
/** Name that a scheduler enters for a member of staff, and the new department of that person's row. */
const CORRECTED = { name: 'Ann-Sofie Ek', department: 'Logistics' };
/** Verdicts of which the story shows one booking each. */
const VERDICTS_SHOWN = ['in the mirror ', 'cancelled at the service', 'not at the service'];

/** Tells the story. Returns what the service received, and which results were as expected. */
export async function tellStory({
  sql,
  sandbox,
  commands,
  say,
  httpPort,
  rate,
}: {
  sql: postgres.Sql;
  sandbox: Sandbox;
  commands: ReturnType<typeof createCommands>;
  say: (line?: string) => void;
  /** Port of the worker's page. */
  httpPort: number;
  /** Number of requests that the sandbox allows in any second. */
  rate: number;
}) {
  /** Numbers of requests that the service received during each sync. `throttled` counts 429 answers. */
  const steps: {
    name: string;
    seconds: number;
    requests: number;
    puts: number;
    objects: number;
    throttled: number;
  }[] = [];
  const checks: Record<string, boolean> = {};
  let most = 0;
  let heading = 0;
  const type = (text: string) => say(`   $ ${text}`);
  const show = (...lines: string[]) => lines.forEach((line) => say(`   ${line}`));
  const command = (...args: string[]) => {
    type(`slotsync ${args.join(' ')}`);
    return commands.run(args);
  };
  const begin = (title: string) => {
    say();
    say(`${++heading}. ${title}`);
  };
  /** Changes the mirror. Returns the time of the change. */
  const change = async (text: string): Promise<number> => {
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
  const valueOf = (extId: string, fieldId: string) =>
    sandbox.object(extId)?.fields.find((field) => field.fieldId === fieldId)?.values[0];

  /** Shows the plan. Returns the number of objects that the first sync will create. */
  async function showPlan(): Promise<number> {
    begin('What would be sent? The service is empty');
    const plan = await command('plan');
    const { stdout } = await commands.run(['plan', '--json']);
    const { streams } = JSON.parse(stdout) as {
      streams: { stream: string; counts: { create: number } }[];
    };
    const creates = streams.map(
      ({ stream, counts }) => `${formatNumber(counts.create)} ${stream.replace('_', ' ')}`,
    );
    show(`To create: ${creates.join(', ')}.`, lineOf(plan.stdout, 'At most '));
    checks['a plan sends nothing'] = sandbox.objects().length === 0;
    return streams.reduce((sum, { counts }) => sum + counts.create, 0);
  }

  async function showSyncs(creates: number) {
    begin('The first sync');
    const { objects, puts, seconds, throttled } = await sync('first sync');
    const wrong = creates - sandbox.objects().length;
    show(
      `${formatNumber(objects)} objects in ${puts} writes, ${seconds} s. Most requests in any second: ${most} of ${rate}; refused: ${throttled}.`,
      `${plural(wrong, 'row is', 'rows are')} faulty on purpose. All other rows were sent.`,
    );
    checks['the quota is kept'] = throttled === 0 && most <= rate;

    begin('A second sync: nothing has changed');
    const second = await sync('nothing changed');
    show(
      `${plural(second.puts, 'write')} sent, in ${second.seconds} s. The databases compared mirror and state.`,
    );
    checks['a second sync sends nothing'] = second.puts === 0;
  }

  async function showChange() {
    begin('A worker sends a change as it happens');
    const { code } = await command('triggers', 'install', 'rooms', 'courses');
    checks['triggers are installed'] = code === 0;
    type('slotsync worker &');
    await commands.startWorker(httpPort);
    const changedAt = await change(`UPDATE campus.rooms SET seats = ${SEATS} WHERE room_code = '${ROOM}'`);
    await commands.until(() => valueOf(`room_${ROOM}`, 'room.seats') === String(SEATS));
    show(`Room ${ROOM} had ${SEATS} seats at the service ${since(changedAt)} later.`);
  }

  async function showBadRow() {
    begin('A bad row: why, what to do, and done');
    const failures = await command('failures', 'courses');
    show(...blockOf(failures.stdout, `'${BAD_COURSE}'`));
    const correctedAt = await change(
      `UPDATE campus.courses SET credits = '7.5' WHERE course_code = '${BAD_COURSE}'`,
    );
    await commands.until(() => valueOf(`course_${BAD_COURSE}`, 'course.credits') === '7.5');
    show(`The course was at the service ${since(correctedAt)} later, without a further command.`);
  }

  async function showBookings() {
    begin('Bookings: what the service made of them');
    const { add, cancel } = await generateReservations(sql);
    for (const reservation of add) sandbox.addReservation(reservation);
    for (const extId of cancel) sandbox.cancelReservation(extId, { extId });
    const { stdout } = await command('reconcile');
    const bookings = stdout.split('\n').filter((line) => line.startsWith('- booking '));
    const shown = VERDICTS_SHOWN.flatMap(
      (verdict) => bookings.find((line) => line.includes(`: ${verdict}`)) ?? [],
    );
    show(
      ...shown,
      `and ${bookings.length - shown.length} more bookings differ. slotsync never changes bookings: an operator decides.`,
    );
    checks['every booking that differs is found'] = await areBookingsFound(sql);
  }

  async function showCorrection() {
    begin('Somebody corrects a name at the service, and it stays');
    const { name, department } = CORRECTED;
    const [person] = await sql<{ id: number }[]>`
      SELECT id FROM campus.staff WHERE left_on IS NULL ORDER BY id LIMIT 1`;
    const extId = `person_S${person?.id}`;
    sandbox.changeObject(extId, { fields: [{ fieldId: 'person.name', values: [name] }] });
    show(`A scheduler enters ${name}. Then another column of the row changes:`);
    await change(`UPDATE campus.staff SET department = '${department}' WHERE id = ${person?.id}`);
    const plan = await command('plan', 'staff');
    show(lineOf(plan.stdout, '  person.name: stays').trim());
    await command('sync', 'staff');
    const there = ['person.name', 'person.department'].map((fieldId) => valueOf(extId, fieldId));
    show(`At the service: ${there.join(', ')}.`);
    checks['a corrected name stays'] =
      isDeepStrictEqual(there, [name, department]) && plan.stdout.includes('person.name: stays');
  }

  async function showMassDeletion() {
    begin('Somebody deletes half of the staff by accident');
    const countStaff = () =>
      sandbox.objects().filter(({ typeId, active }) => typeId === 'person.staff' && active).length;
    const before = countStaff();
    await change('DELETE FROM campus.staff WHERE id % 2 = 0');
    const { code, stdout } = await sync('half of the staff is deleted');
    show(...blockOf(stdout, 'deactivations of staff').slice(0, 2));
    show('Nobody was deactivated at the service. An operator approves it, or restores the rows.');
    checks['a mass deletion is held'] = code === 3 && countStaff() >= before;
  }

  await commands.run(['migrate']);
  await showSyncs(await showPlan());
  await showChange();
  await showBadRow();
  await showBookings();
  await showCorrection();
  await showMassDeletion();
  return { steps, checks, most };
}

const since = (changedAt: number) => formatDuration((performance.now() - changedAt) / 1000);

const lineOf = (output: string, beginning: string) =>
  output.split('\n').find((line) => line.startsWith(beginning)) ?? `(no line begins with ${beginning})`;

/** Returns the lines about one subject: the first line that contains `name`, and the indented lines after it. */
function blockOf(output: string, name: string): string[] {
  const lines = output.split('\n');
  const start = lines.findIndex((line) => line.includes(name));
  const end = lines.findIndex((line, at) => at > start && !line.startsWith(' '));
  return lines.slice(start, end < 0 ? undefined : end);
}

/** Returns true if reconcile found exactly the differences of DIFFERING_BOOKINGS. */
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
