// The sample university on a bad morning, after its nightly sync: the program that loads the courses did not run, the student groups
// are frozen, the service refuses too many rooms, and a building for which other records wait. The test and the script that
// makes pictures play the same.
import { fileURLToPath } from 'node:url';
import type postgres from 'postgres';
import { generateReservations } from '../../src/demo/university.js';
import type { Sandbox } from '../../src/sandbox/sandbox.js';
import type { AcceptedMail } from './mail-server.js';
import { until } from './wait.js';

/** The token of the operator's page. */
export const TOKEN = 'a-token-of-the-page';
export const MAIL_TO = 'ops@campus.example';
export const REPORT_TO = 'registrar@campus.example';
const UNIVERSITY = fileURLToPath(new URL('../../dist/demo/sync.config.js', import.meta.url));

/** The sample university's, with a nightly schedule, mail, and a question about the load of the courses. */
export const CONFIGURATION = `
import { defineConfig } from 'slotsync';
import { universityConfig } from '${UNIVERSITY}';
const { streams } = universityConfig;
export default defineConfig({
  ...universityConfig,
  schedule: { nightly: '0 2 * * *', timezone: 'Europe/Stockholm' },
  alerts: { mail: { from: 'slotsync@campus.example', to: ['${MAIL_TO}'] } },
  report: { to: ['${REPORT_TO}'] },
  streams: {
    ...streams,
    rooms: { ...streams.rooms, batchSize: 10 },
    staff: { ...streams.staff, batchSize: 100 },
    courses: { ...streams.courses, freshness: { query: 'SELECT max(finished_at) FROM campus.loads' } },
  },
});
`;

/** The mail that an address got first: its subject and its two parts. */
export function mailTo(mails: readonly AcceptedMail[], address: string) {
  const mail = mails.find(({ to }) => to.includes(address));
  if (!mail) return undefined;
  const [, boundary = ''] = /boundary="([^"]+)"/.exec(mail.source) ?? [];
  const [, ...parts] = mail.source.split(`\r\n--${boundary}`);
  const partOf = (type: string) => decode(parts.find((part) => part.includes(`Content-Type: ${type}`)) ?? '');
  return {
    subject: /^Subject: ([^]*?)\r\n(?! )/m.exec(mail.source)?.[1]?.replaceAll('\r\n', '') ?? '',
    text: partOf('text/plain'),
    html: partOf('text/html'),
  };
}

function decode(part: string): string {
  const [head = '', ...rest] = part.split('\r\n\r\n');
  const body = rest.join('\r\n\r\n');
  if (/Encoding: base64/i.test(head)) return Buffer.from(body, 'base64').toString();
  if (!/Encoding: quoted-printable/i.test(head)) return body;
  const bytes = body
    .replaceAll('=\r\n', '')
    .replaceAll(/=([0-9A-F]{2})/g, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)));
  return Buffer.from(bytes, 'latin1').toString();
}

interface Installation {
  sql: postgres.Sql;
  sandbox: Sandbox;
  /** Carries a command out to its end. */
  run: (...args: string[]) => Promise<unknown>;
  /** Starts a worker, which finds that the nightly sync is due. */
  startWorker: () => Promise<unknown>;
}

/** Needs an installation with this configuration, a filled mirror and the state tables; resolves when the nightly sync has ended. */
export async function playBadMorning({ sql, sandbox, run, startWorker }: Installation): Promise<void> {
  await sql`CREATE TABLE campus.loads (finished_at timestamptz)`;
  await sql`INSERT INTO campus.loads VALUES (now())`;
  sandbox.refuseObject('building_K', { status: 400, message: 'the campus Kemi is closed in this period' });
  await run('sync');
  const { add, cancel } = await generateReservations(sql);
  for (const reservation of add) sandbox.addReservation(reservation);
  for (const extId of cancel) sandbox.cancelReservation(extId, { extId });
  await run('reconcile');
  sandbox.changeObject('room_A101', { fields: [{ fieldId: 'room.seats', values: ['12'] }] });
  await run('verify');
  await run('freeze', 'student_groups', '--until', '14d', '--reason', 'exam weeks');

  // The load is as old as if two nights had passed.
  await sql`UPDATE campus.loads SET finished_at = now() - interval '2 days 5 hours'`;
  await sql`UPDATE slotsync.freshness SET (loaded_at, synced_load_at) = (SELECT finished_at, finished_at FROM campus.loads)`;
  await sql`UPDATE campus.courses SET name = name || ' (ny)' WHERE course_code LIKE 'ALG%'`;
  await sql`UPDATE campus.student_groups SET size = size + 1 WHERE year_group = 1`;
  await sql`UPDATE campus.staff SET left_on = current_date WHERE id % 4 = 0 AND left_on IS NULL`;
  await sql`UPDATE campus.rooms SET equipment = equipment || 'defibrillator'::text`;
  for (const { code } of await sql<{ code: string }[]>`
    SELECT room_code AS code FROM (SELECT room_code, row_number() OVER (ORDER BY room_code) AS n FROM campus.rooms) AS r
    WHERE n % 3 > 0`)
    sandbox.refuseObject(`room_${code}`, {
      status: 400,
      message: 'room.equipment: the value defibrillator is not defined',
    });

  // All of it was two days ago.
  await sql`UPDATE slotsync.destination SET bound_at = bound_at - interval '2 days'`;
  await sql`
    UPDATE slotsync.runs SET requested_at = requested_at - interval '2 days', finished_at = finished_at - interval '2 days'`;
  await sql`UPDATE slotsync.verifications SET verified_at = verified_at - interval '2 days'`;

  // A worker was started before the night, and is started again after it.
  await sql`
    INSERT INTO slotsync.schedules (name, pattern, timezone, registered_at)
    VALUES ('nightly', '0 2 * * *', 'Europe/Stockholm', now() - interval '26 hours')`;
  await startWorker();
  await until(
    async () => {
      const [run] = await sql`
        SELECT FROM slotsync.runs WHERE started_by = 'schedule' AND kind = 'sync' AND finished_at IS NOT NULL`;
      return run !== undefined;
    },
    { describe: 'the nightly sync to end' },
  );
}
