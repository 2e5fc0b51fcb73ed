// Makes the pictures of the page and of a terminal in docs/images: when all is well after thirty nights, and on a bad morning
// (test/support/bad-morning.ts) with a run under way: npm run build && node scripts/page-pictures.mjs. With a folder, also a page of pictures, index.html: what each surface says of
// that morning, and of the same state restored: node scripts/page-pictures.mjs <folder>
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { createJiti } from 'jiti';
import { chromium } from 'playwright-core';
import postgres from 'postgres';
import { startEmbeddedPostgres } from '../dist/demo/embedded-postgres.js';
import { universitySchema } from '../dist/demo/sync.config.js';
import { loadUniversity } from '../dist/demo/university.js';
import { startSandbox } from '../dist/sandbox/sandbox.js';

const jiti = createJiti(import.meta.url, { fsCache: false });
const support = (name) => jiti.import(`../test/support/${name}.ts`);
const { CONFIGURATION, MAIL_TO, REPORT_TO, TOKEN, mailTo, playBadMorning } = await support('bad-morning');
const { findChromium } = await support('chromium');
const { backUpDatabase } = await support('clusters');
const { openMailServer } = await support('mail-server');
const { readTerminal, withoutColours } = await support('terminal');
const { until } = await support('wait');

const CLI = fileURLToPath(new URL('../dist/cli.js', import.meta.url));
const IMAGES = fileURLToPath(new URL('../docs/images/', import.meta.url));
const PORT = 8391;
const PAGE = `http://localhost:${PORT}`;
const WIDTHS = [390, 1280];
const PATHS = [
  '/',
  '/runs',
  '/runs/4',
  '/failures',
  '/drift',
  '/bookings',
  '/report',
  '/records/buildings/K',
];
const COMMANDS = ['status', 'runs', 'runs 4', 'failures', 'report', 'check', 'alerts', 'actions', 'plan'];

const folder = process.argv[2] && path.resolve(process.argv[2]);
const closers = [];
const shown = [];
try {
  const server = await startEmbeddedPostgres();
  closers.push(server.stop);
  const url = await server.createDatabase('university');
  const sql = postgres(url, { max: 1, onnotice: () => undefined });
  closers.push(() => sql.end({ timeout: 1 }));
  await loadUniversity(sql, { seed: 1 });
  const sandbox = await startSandbox({ rate: 20, latencyMs: 20, schema: universitySchema });
  closers.push(() => sandbox.close());
  const mailServer = await openMailServer();
  closers.push(() => mailServer.close());
  const place = await mkdtemp(path.join(tmpdir(), 'slotsync-pictures-'));
  closers.push(() => rm(place, { recursive: true }));
  await writeFile(path.join(place, 'sync.config.ts'), CONFIGURATION);
  const env = {
    PATH: process.env['PATH'],
    MIRROR_DATABASE_URL: url,
    API_BASE_URL: sandbox.url,
    API_KEY: 'sandbox-key',
    API_ORGANIZATION_ID: 'demo',
    ALERT_SMTP_URL: `smtp://127.0.0.1:${mailServer.port}?tls=none`,
    LOG_LEVEL: 'warn',
    HTTP_PORT: String(PORT),
    HTTP_TOKEN: TOKEN,
  };
  const startWith = (changes, ...args) =>
    spawn(process.execPath, [CLI, ...args], { env: { ...env, ...changes }, cwd: place, stdio: 'inherit' });
  const start = (...args) => startWith({}, ...args);
  const run = (...args) => once(start(...args), 'exit');
  let worker;
  const startWorker = async () => {
    worker = start('worker');
    closers.push(stopWorker);
    await until(async () => (await fetch(`${PAGE}/healthz`)).ok, { describe: 'the page' });
  };
  const stopWorker = async () => {
    if (worker.exitCode !== null) return;
    worker.kill('SIGTERM');
    await once(worker, 'exit');
  };
  const type = (command) => readTerminal(command, { env, cwd: place });

  const browser = await chromium.launch({ executablePath: findChromium() ?? '', args: ['--no-sandbox'] });
  closers.push(() => browser.close());
  await wellPicture(browser, await server.createDatabase('well'), startWith);

  await run('migrate');
  await playBadMorning({ sql, sandbox, run, startWorker });
  await addNights(sql);
  await sql`
    INSERT INTO slotsync.request_seconds (second, requests, throttled)
    SELECT date_trunc('second', now()) - make_interval(secs => s), 3 + (8 * (1 + sin(s / 400.0)))::int, 0
    FROM generate_series(200, 3500, 4) AS s ON CONFLICT DO NOTHING`;

  if (folder) {
    await mkdir(folder, { recursive: true });
    await until(() => mailTo(mailServer.mails, REPORT_TO) && mailTo(mailServer.mails, MAIL_TO), {
      describe: 'the mails',
      timeoutMs: 300_000,
    });
    for (const to of [MAIL_TO, REPORT_TO]) {
      const mail = mailTo(mailServer.mails, to);
      shown.push([`Mail to ${to}: ${mail.subject}`, { text: mail.text }]);
      for (const width of WIDTHS)
        await picture(browser, { folder, name: `mail-${to.split('@')[0]}-${width}`, width, html: mail.html });
    }
    for (const command of COMMANDS) shown.push([`slotsync ${command}`, { text: await type(command) }]);
    for (const width of WIDTHS)
      for (const at of PATHS) await picture(browser, { folder, name: nameOf('page', at, width), width, at });
  }

  const failures = await type('failures');
  sandbox.closeGate({ method: 'PUT', path: '/objects', after: 1 });
  await run('backfill', 'staff', '--force', '--detach');
  await until(() => sandbox.gate().held > 0, { describe: 'a request at the gate' });
  await picture(browser, { folder: IMAGES, name: 'page-desktop', width: 1280, height: 800, at: '/' });
  await picture(browser, { folder: IMAGES, name: 'page-phone', width: 390, height: 1400, at: '/' });
  await terminalPicture(browser, `$ slotsync failures\n${failures}`);
  sandbox.openGate();

  if (folder) {
    await stopWorker();
    const putBack = await backUpDatabase(url);
    await putBack();
    for (const command of ['status', 'failures', 'report', 'check'])
      shown.push([`restored: slotsync ${command}`, { text: await type(command) }]);
    await startWorker();
    for (const width of WIDTHS)
      for (const at of ['/', '/failures'])
        await picture(browser, { folder, name: nameOf('restored', at, width), width, at });
    await writePage(folder);
  }
} catch (error) {
  console.error(error);
  process.exitCode = 1;
} finally {
  for (const close of closers.reverse()) await close();
}
process.exit();

/** The page of an installation with a service of its own, where every record is in sync. */
async function wellPicture(browser, url, startWith) {
  const sql = postgres(url, { max: 1, onnotice: () => undefined });
  const sandbox = await startSandbox({ rate: 20, schema: universitySchema });
  closers.push(
    () => sandbox.close(),
    () => sql.end({ timeout: 1 }),
  );
  await loadUniversity(sql, { seed: 1 });
  await sql`CREATE TABLE campus.loads AS SELECT now() AS finished_at`;
  // Rows that the sample has for its failures.
  await sql`DELETE FROM campus.staff WHERE id >= 9000`;
  await sql`DELETE FROM campus.courses WHERE course_code = 'MAT888' OR home_room = 'Ö404'`;
  const own = { MIRROR_DATABASE_URL: url, API_BASE_URL: sandbox.url };
  await once(startWith(own, 'migrate'), 'exit');
  await addNights(sql);
  await once(startWith(own, 'sync'), 'exit');
  await moveToNight(sql);
  const page = startWith(own, 'page', '--port', String(PORT));
  await until(async () => (await fetch(PAGE)).ok, { describe: 'the page' });
  await picture(browser, { folder: IMAGES, name: 'page-well', width: 1280, height: 720, at: '/' });
  page.kill('SIGTERM');
  await once(page, 'exit');
}

/** Makes the latest run the sync of last night, from 02:00 to 02:11, with the requests of a usual night. */
async function moveToNight(sql) {
  const [{ at }] = await sql`SELECT ${lastNight(sql)} AS at`;
  await sql`
    UPDATE slotsync.runs SET requested_at = ${at}, finished_at = ${at}::timestamptz + interval '11 minutes',
      counts = (SELECT jsonb_object_agg(s, '{"synced": 90, "unchanged": 0, "deferred": 0, "failed": 0, "dead": 0}'::jsonb) FROM unnest(streams) AS s),
      accepted = (SELECT jsonb_object_agg(s, '{"create": 0, "update": 90, "retire": 0}'::jsonb) FROM unnest(streams) AS s)
    WHERE id = (SELECT max(id) FROM slotsync.runs)`;
  await sql`UPDATE slotsync.streams SET synced_at = ${at}::timestamptz + interval '11 minutes'`;
  await sql`UPDATE slotsync.destination SET bound_at = bound_at - interval '45 days'`;
  await sql`DELETE FROM slotsync.request_seconds`;
  await sql`
    INSERT INTO slotsync.request_seconds (second, requests, throttled)
    SELECT ${at}::timestamptz + make_interval(secs => s), 17 + (3 * sin(s / 40.0))::int, 0 FROM generate_series(5, 640) AS s`;
}

function lastNight(sql) {
  return sql`(date_trunc('day', now() AT TIME ZONE 'Europe/Stockholm') + interval '2 hours') AT TIME ZONE 'Europe/Stockholm'`;
}

/** Whole syncs of thirty nights, as a schedule would have started them, and the requests of the last one. */
async function addNights(sql) {
  await sql`
    INSERT INTO slotsync.runs (kind, lane, started_by, streams, status, plan, counts, accepted, requested_at, finished_at)
    SELECT 'sync', 'sync', 'schedule', array_agg(s), CASE WHEN d = 9 THEN 'failed' ELSE 'succeeded' END,
      jsonb_object_agg(s, '{}'::jsonb),
      jsonb_object_agg(s, jsonb_build_object('synced', n, 'unchanged', 0, 'deferred', 0, 'failed', 0, 'dead', 0)),
      jsonb_object_agg(s, jsonb_build_object('create', 0, 'update', n, 'retire', 0)),
      at, at + interval '11 minutes'
    FROM generate_series(1, 29) AS d, unnest(ARRAY['buildings', 'rooms', 'staff', 'courses', 'student_groups']) AS s,
      LATERAL (SELECT ${lastNight(sql)} - make_interval(days => d) AS at) AS night,
      LATERAL (SELECT CASE WHEN d = 9 THEN 0 ELSE 60 + ((d * 37 + length(s) * 11) % 50) END AS n) AS sent
    GROUP BY d, at ORDER BY at`;
}

function nameOf(what, at, width) {
  return `${what}${at === '/' ? '' : at.replaceAll('/', '-')}-${width}`;
}

/** Pictures a path of the page, or HTML. Without a height all of it is shown. */
async function picture(browser, { folder: into, name, width, height, at, html }) {
  const viewport = { width, height: height ?? 800 };
  const context = await browser.newContext({ viewport, colorScheme: 'light' });
  const opened = await context.newPage();
  if (html === undefined) {
    await opened.goto(`${PAGE}/sign-in`);
    await opened.getByLabel('Token').fill(TOKEN);
    await opened.getByRole('button', { name: 'Sign in' }).click();
    await opened.goto(PAGE + at);
    await opened
      .getByText('Up to date.')
      .waitFor({ state: 'attached', timeout: 3000 })
      .catch(() => undefined);
  } else await opened.setContent(html);
  const scrolled = await opened.evaluate('document.documentElement.scrollWidth');
  if (scrolled > width) process.stderr.write(`${name}: ${scrolled} pixels wide\n`);
  await opened.screenshot({ path: path.join(into, `${name}.png`), fullPage: height === undefined });
  shown.push([name, { image: `${name}.png` }]);
  await context.close();
}

async function terminalPicture(browser, typed) {
  const colours = { 31: '#ff6b6b', 32: '#69db7c', 33: '#ffc94d' };
  const html = escape(typed)
    // oxlint-disable-next-line no-control-regex -- what a terminal obeys
    .replaceAll(/\u001b\[(\d*)m/g, (_, code) =>
      colours[code] ? `<span style="color: ${colours[code]}">` : '</span>',
    )
    // oxlint-disable-next-line no-control-regex
    .replaceAll(/\u001b\[\w/g, '');
  const context = await browser.newContext({ deviceScaleFactor: 2 });
  const page = await context.newPage();
  await page.setContent(
    `<pre style="display: inline-block; margin: 0; padding: 14px; background: #1b2030; color: #e6e9f0; font: 13px/1.45 monospace">${html.trim()}</pre>`,
  );
  await page.locator('pre').screenshot({ path: path.join(IMAGES, 'terminal.png') });
  await context.close();
}

async function writePage(into) {
  const parts = shown.map(([title, { text: typed, image }]) => {
    const body = image ? `<img src="${image}">` : `<pre>${escape(withoutColours(typed))}</pre>`;
    return `<h2>${escape(title)}</h2>\n${body}\n`;
  });
  const style =
    'body { font: 15px sans-serif } img { border: 1px solid #999 } pre { width: 80ch; background: #eee }';
  await writeFile(
    path.join(into, 'index.html'),
    `<!doctype html><meta charset="utf-8"><title>A bad morning</title><style>${style}</style>\n${parts.join('')}`,
  );
}

function escape(typed) {
  return typed.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}
