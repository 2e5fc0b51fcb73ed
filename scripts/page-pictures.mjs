// Makes the pictures of the page and of a terminal in docs/images, on a bad morning (bad-morning.mjs) with a run under way:
// npm run build && node scripts/page-pictures.mjs [folder] [more paths]
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { playBadMorning } from './bad-morning.mjs';

const TOKEN = 'a-token-of-the-pictures';
const folder = process.argv[2] ?? fileURLToPath(new URL('../docs/images/', import.meta.url));

const PORT = 8391;
const CHROMIUM = (process.env['PATH'] ?? '')
  .split(':')
  .map((each) => `${each}/chromium`)
  .find(existsSync);
if (!CHROMIUM) throw new Error('chromium is not on PATH');

const closers = [];
try {
  const { sql, sandbox, env, cli, start, run } = await playBadMorning({
    closers,
    settings: { HTTP_PORT: String(PORT), HTTP_TOKEN: TOKEN },
  });
  await sql`
    INSERT INTO slotsync.request_seconds (second, requests, throttled)
    SELECT date_trunc('second', now()) - make_interval(secs => s), 3 + (8 * (1 + sin(s / 400.0)))::int, 0
    FROM generate_series(200, 3500, 4) AS s ON CONFLICT DO NOTHING`;

  const failures = await readTerminal(cli, 'failures', { ...env, TERM: 'xterm' });
  const worker = start('worker');
  closers.push(async () => {
    worker.kill('SIGTERM');
    await once(worker, 'exit');
  });
  const page = `http://localhost:${PORT}`;
  await until(async () => (await fetch(`${page}/healthz`)).ok);
  // A request holds at most 1000 objects, so a second one is needed for the courses, whatever size was learned.
  sandbox.closeGate({ method: 'PUT', path: '/objects', after: 1 });
  closers.push(async () => sandbox.openGate());
  await run('backfill', 'courses', '--force', '--detach');
  await until(() => sandbox.gate().held > 0);

  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] });
  closers.push(() => browser.close());
  await picture(browser, page, { width: 1280, height: 1400, name: 'page-desktop' });
  await picture(browser, page, { width: 390, height: 1400, name: 'page-phone' });
  await terminalPicture(browser, `$ slotsync failures\n${failures}`);
  for (const path of process.argv.slice(3))
    await picture(browser, page, {
      width: 1280,
      height: 1000,
      name: `page${path.replaceAll('/', '-')}`,
      path,
    });
} finally {
  for (const close of closers.reverse()) await close();
}
process.exit();

async function picture(browser, origin, { width, height, name, path = '/' }) {
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme: name.endsWith('-dark') ? 'dark' : 'light',
  });
  const shown = await context.newPage();
  await shown.goto(`${origin}/sign-in`);
  await shown.getByLabel('Token').fill(TOKEN);
  await shown.getByRole('button', { name: 'Sign in' }).click();
  await shown.goto(origin + path.replace('-dark', ''));
  await shown
    .getByText('Up to date.')
    .waitFor({ state: 'attached', timeout: 3000 })
    .catch(() => undefined);
  await shown.screenshot({ path: `${folder}/${name}.png` });
  await context.close();
}

/** The output of a command on a terminal of 80 columns, with its colours. */
async function readTerminal(cli, command, env) {
  const typed = `stty cols 80 rows 50; ${process.execPath} ${cli} ${command}`;
  const terminal = spawn('script', ['-qec', typed, '/dev/null'], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  return (await text(terminal.stdout)).replaceAll('\r', '');
}

async function terminalPicture(browser, shown) {
  const colours = { 31: '#ff6b6b', 32: '#69db7c', 33: '#ffc94d' };
  const html = shown
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
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
  await page.locator('pre').screenshot({ path: `${folder}/terminal.png` });
  await context.close();
}

async function until(condition) {
  while (
    !(await Promise.resolve()
      .then(condition)
      .catch(() => false))
  )
    await pause(50);
}
