// The operator's page in a browser, served by a worker: what it shows, and actions by mouse and keyboard.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { findChromium, openChromium } from '../support/chromium.js';
import { findFreePort } from '../support/free-port.js';
import { rehearseEach, rehearseOnce } from '../support/rehearsals.js';
import { until } from '../support/wait.js';

const TOKEN = 'correct-horse-battery';
const SCRIPT = '<script>alert(1)</script>';
const RECORD = `/records/rooms/${encodeURIComponent(SCRIPT)}`;
/** Counts the tables that are wider than their visible part. */
const CUT_TABLES =
  '[...document.querySelectorAll(".scroll")].filter((each) => each.scrollWidth > each.clientWidth).length';
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

describe.skipIf(!findChromium())('the page in a browser', () => {
  const world = rehearseOnce({ sandbox: { rate: 0 } });
  let browser: Browser;
  let origin: string;
  let context: BrowserContext;
  let page: Page;
  /** Faults of a page: dialogs, errors, and requests to other hosts. */
  let wrong: string[];

  beforeAll(async () => {
    world.sandbox.refuseObject(`room_${SCRIPT}`, { status: 400, message: `not ${SCRIPT}` });
    await world.sql`INSERT INTO rooms VALUES (${SCRIPT}, ${SCRIPT}, 1)`;
    await world.run(['sync']);
    await world.sql`UPDATE courses SET room = NULL WHERE id > 48`;
    await world.sql`DELETE FROM rooms WHERE seats > 48`;
    await world.run(['sync']);
    await world.sql`UPDATE slotsync.records SET updated_at = now() - interval '1 hour'`;
    world.sandbox.changeObject('room_R1', { fields: [{ fieldId: 'room.name', values: [SCRIPT] }] });
    await world.run(['verify', 'rooms']);
    const port = await findFreePort();
    await world.startWorker(['--concurrency', '1'], { HTTP_PORT: String(port), HTTP_TOKEN: TOKEN });
    origin = `http://localhost:${port}`;
    browser = await openChromium();
  });
  afterAll(() => browser.close());

  beforeEach(async () => {
    context = await browser.newContext({ baseURL: origin });
    page = await context.newPage();
    wrong = [];
    page.on('dialog', (dialog) => {
      wrong.push(`dialog ${dialog.message()}`);
      void dialog.dismiss();
    });
    page.on('console', (line) => line.type() === 'error' && wrong.push(line.text()));
    page.on('pageerror', (error) => wrong.push(String(error)));
    page.on('request', (request) => !request.url().startsWith(origin) && wrong.push(request.url()));
  });
  afterEach(async () => {
    await context.close();
    expect(wrong).toEqual([]);
  });

  async function signIn(): Promise<void> {
    await page.goto('/sign-in');
    await page.getByLabel('Token').fill(TOKEN);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.waitForURL('/');
  }

  it('has no serious finding of axe in light or dark, fits a phone, and shows a row as text', async () => {
    await page.goto('/sign-in');
    expect(await faults(page)).toEqual([]);
    await signIn();
    await page.goto('/drift');
    // Unlike the cards of the first page, this section shows its heading.
    const heading = await page.getByRole('heading', { name: 'By stream' }).boundingBox();
    expect(heading?.height).toBeGreaterThan(10);
    const search = `/records?key=${encodeURIComponent(SCRIPT)}`;
    const named = ['/', '/failures', '/drift', '/report', RECORD, search];
    const others = [
      '/runs',
      '/runs/2',
      '/bookings',
      '/none',
      '/runs/2/approve?stream=rooms&operation=retire',
    ];
    for (const path of [...named, ...others]) {
      await page.emulateMedia({ colorScheme: 'light' });
      await page.setViewportSize({ width: 1280, height: 800 });
      await page.goto(path);
      if (named.includes(path)) expect(await page.locator('main').innerText(), path).toContain(SCRIPT);
      expect(await faults(page), path).toEqual([]);
      await page.emulateMedia({ colorScheme: 'dark' });
      expect(await faults(page, ['color-contrast']), `${path}, dark`).toEqual([]);
      await page.setViewportSize({ width: 360, height: 740 });
      expect(await page.evaluate('document.documentElement.scrollWidth'), path).toBe(360);
      expect(await page.evaluate(CUT_TABLES), path).toBe(0);
    }
    wrong = wrong.filter((line) => !line.includes('404')); // of /none
    await page.goto(RECORD);
    await page.getByRole('button', { name: 'Read mirror and service' }).click();
    await page.getByRole('heading', { name: 'Row in the mirror' }).waitFor();
    expect(await page.locator('main').innerText()).toContain(`"${SCRIPT}"`);
  });

  it('shows the same without JavaScript', async () => {
    const plain = await browser.newContext({ baseURL: origin, javaScriptEnabled: false });
    const shown = await plain.newPage();
    await shown.goto('/');
    expect(await shown.locator('main').innerText()).toContain('12 deactivations of rooms');
    expect(await shown.locator('footer').innerText()).toContain('reload');
    await plain.close();
  });

  it('keeps unfolded details open while it updates, and copies a command', async () => {
    await context.grantPermissions(['clipboard-read', 'clipboard-write']);
    await page.goto('/');
    await page.getByText('Up to date.').waitFor();
    const drift = page.locator('#attention li', { hasText: '1 object of rooms drifts' });
    expect(await drift.getByText('Not as last accepted').isVisible()).toBe(false);
    await drift.locator('summary').click();
    await world.sql`UPDATE slotsync.processes SET host = host || '!'`;
    await page.locator('#processes').getByText('!').first().waitFor({ state: 'attached' });
    expect(await drift.getByText('Not as last accepted').isVisible()).toBe(true);
    await drift.getByRole('button', { name: 'Copy slotsync verify rooms', exact: true }).click();
    await page.getByText('Copied: slotsync verify rooms').waitFor();
    expect(await page.evaluate('navigator.clipboard.readText()')).toBe('slotsync verify rooms');
  });

  it('shows state, cards and concerns without scrolling, and a night leads to its run', async () => {
    await page.setViewportSize({ width: 1280, height: 800 });
    await page.goto('/');
    const bottomOf = async (selector: string) => {
      const box = await page.locator(selector).first().boundingBox();
      return (box?.y ?? Infinity) + (box?.height ?? Infinity);
    };
    for (const selector of ['.state', '.cards', '#graphs', '#attention li'])
      expect(await bottomOf(selector), selector).toBeLessThanOrEqual(800);
    expect(await page.locator('.state').innerText()).toMatch(/^\d things need you: 1 hold, /);
    expect(await page.locator('svg.graph[role=img]').count()).toBe(3);
    await page
      .getByRole('link', { name: /: held$/ })
      .first()
      .click();
    await page.getByRole('heading', { name: 'Run 2' }).waitFor();
    await page.getByRole('heading', { name: 'Timeline' }).waitFor();
  });

  it('retries a failure', async () => {
    await signIn();
    world.sandbox.allowObject(`room_${SCRIPT}`);
    await page.goto('/failures');
    await page.getByRole('link', { name: /^Retry …/ }).click();
    await page.getByRole('button', { name: 'Retry 1 record' }).click();
    await page.getByText('1 record of rooms put into the inbox.').waitFor();
    await until(() => world.sandbox.object(`room_${SCRIPT}`), { describe: 'the object at the service' });
    await page.getByRole('link', { name: /^Retry …/ }).waitFor({ state: 'detached' });
  });

  // After the retry: retirements wait for records of the stream that were given up.
  it('approves a hold by keyboard only', async () => {
    const tabTo = async (name: string) => {
      const focused = () =>
        page.evaluate<string>(
          'document.activeElement?.labels?.[0]?.textContent ?? document.activeElement?.textContent ?? ""',
        );
      for (let presses = 0; presses < 60; presses++) {
        await page.keyboard.press('Tab');
        if ((await focused()).startsWith(name)) return;
      }
      throw new Error(`${name} is not reached with Tab`);
    };
    await page.goto('/');
    await tabTo('Skip to the content');
    await tabTo('Sign in to act');
    await page.keyboard.press('Enter');
    await page.waitForURL('/sign-in');
    await page.locator('input:focus').waitFor(); // without a click
    await page.keyboard.type(TOKEN);
    await page.keyboard.press('Enter');
    await page.waitForURL('/');
    await tabTo('Skip to the content');
    await page.keyboard.press('Enter');
    await tabTo('Approve');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Approve 12 deactivations of rooms?' }).waitFor();
    await tabTo('Approve 12 deactivations of rooms');
    await page.keyboard.press('Enter');
    await page.getByText('Approved: up to 12 deactivations of rooms').first().waitFor();
    const inactive = () => world.sandbox.objects().filter(({ active }) => !active).length;
    await until(() => inactive() === 12, { describe: 'the rooms to be retired' });
    // Without a reload.
    await page.getByRole('link', { name: 'Approve … 12 deactivations' }).waitFor({ state: 'detached' });
  });

  it('says since when it is out of date, in the background and without a connection', async () => {
    const upToDate = () => page.getByText('Up to date.').waitFor();
    const isHidden = (hidden: boolean) =>
      page.evaluate(`Object.defineProperty(document, 'hidden', { value: ${hidden}, configurable: true });
        document.dispatchEvent(new Event('visibilitychange'));`);
    await page.goto('/failures');
    await upToDate();
    await isHidden(true);
    await page.getByText(/^Not up to date since \d\d:\d\d:\d\d: it is in the background\.$/).waitFor();
    await isHidden(false);
    await upToDate();
    await context.setOffline(true);
    await page.getByText(/^Not up to date since \d\d:\d\d:\d\d: no connection\.$/).waitFor();
    await context.setOffline(false);
    await upToDate();
    wrong = wrong.filter((line) => !line.includes('ERR_INTERNET_DISCONNECTED'));
  });

  it('updates the numbers of a run, and pauses and resumes the run', async () => {
    await signIn();
    await page.evaluate('window.isTheSame = true');
    world.holdWrites();
    world.sandbox.clearArrivals();
    await world.sql`UPDATE rooms SET seats = seats + 1000`;
    await world.sql`UPDATE courses SET name = name || '!'`;
    await world.run(['sync', '--detach']);
    await world.untilHeld();
    const underWay = page.locator('#under-way');
    await underWay.getByText(/0 of 109 records, 0 %/).waitFor();
    await page.getByRole('textbox', { name: 'Record' }).fill('typed');
    await underWay.getByRole('button', { name: 'Pause' }).focus();
    // The three requests of the rooms, and none of the courses, which are one batch.
    const left = 3 - world.puts().length;
    world.sandbox.openGate();
    world.holdWrites(left);
    await underWay.getByText(/49 of 109 records, 44 %\. Done about/).waitFor();
    expect(await underWay.locator('progress').getAttribute('value')).toBe('49');
    expect(await page.locator('button:focus').innerText()).toContain('Pause');
    expect(await page.getByRole('textbox', { name: 'Record' }).inputValue()).toBe('typed');
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.getByText('is paused: requests in progress are answered').waitFor();
    await page.goto('/');
    await underWay.getByText('paused', { exact: true }).waitFor();
    await underWay.getByRole('button', { name: 'Resume' }).click();
    await page.getByText('continues.').waitFor();
    await page.goto('/');
    await page.evaluate('window.isTheSame = true');
    world.sandbox.openGate();
    await underWay.getByText('No run is under way.').waitFor();
    expect(await page.evaluate('window.isTheSame')).toBe(true);
  });
});

describe('the command page', () => {
  const world = rehearseEach({ rows: 1 });

  it('serves a read-only page without a token, and sends nothing, until it is stopped', async () => {
    const open = await world.run(['page', '--port', '0'], { HTTP_HOST: '0.0.0.0' });
    expect(open.code).toBe(2);
    expect(open.stderr).toContain('HTTP_HOST is 0.0.0.0, and HTTP_TOKEN is not set');
    const served = world.start(['page', '--port', '0']);
    const said = /(http:\/\/127\.0\.0\.1:\d+\/)[^]*The page is read-only, because HTTP_TOKEN is not set\./;
    const address = await until(() => said.exec(served.output())?.[1], {
      describe: () => `the address: ${served.output()}`,
    });
    const shown = await (await fetch(address)).text();
    expect(shown).toContain('Nothing is synced yet. To begin: <code>slotsync sync</code>');
    expect(shown).toContain('No process is running.');
    // Also a terminal lists the streams before the first sync.
    expect(await world.read('status')).toMatch(/^rooms .* 0 of 0 /m);
    expect((await fetch(`${address}healthz`)).status).toBe(404);
    served.child.kill('SIGINT');
    expect((await served.finished).code).toBe(0);
  });
});

/** Findings that axe calls serious or critical, by rule and place. */
async function faults(page: Page, rules?: string[]): Promise<string[]> {
  await page.evaluate(AXE);
  const only = rules === undefined ? '{}' : JSON.stringify({ runOnly: rules });
  const { violations } = await page.evaluate<{
    violations: { id: string; impact: string; nodes: { html: string; failureSummary: string }[] }[];
  }>(`axe.run(document, ${only})`);
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html} ${node.failureSummary}`));
}
