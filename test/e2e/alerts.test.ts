// Guarantee 9
// The command `alerts`, and a worker that sends alerts.
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import { openMailServer, type MailServer } from '../support/mail-server.js';
import type { Env } from '../support/program.js';
import { CONFIGURATION } from '../support/rehearsal.js';
import { commandsOf, rehearseOnce } from '../support/rehearsals.js';
import { until } from '../support/wait.js';
import { openWebhookReceiver, type WebhookReceiver } from '../support/webhook-receiver.js';

const world = rehearseOnce({ rows: 5, sandbox: { rate: 0 } });
let mailServer: MailServer;
let receiver: WebhookReceiver;

const withAlerts = (text: string) => CONFIGURATION.replace('streams: {', `alerts: ${text},\n  streams: {`);
const withReport = (text: string) => CONFIGURATION.replace('streams: {', `report: ${text},\n  streams: {`);
const MAIL = `{ mail: { from: 'slotsync@campus.example', to: ['ops@campus.example'] } }`;

beforeAll(async () => {
  mailServer = await openMailServer({ login: { user: 'slotsync', password: 'pa55word' } });
});
afterAll(() => mailServer.close());
beforeEach(async () => void (receiver = await openWebhookReceiver()));
afterEach(() => receiver.close());

/** Settings of every channel. The addresses and the password are secrets. */
const channels = () => ({
  ALERT_WEBHOOK_URL: `${receiver.url}/s3cret-webhook`,
  ALERT_WEBHOOK_SECRET: 'whsec_s3cretOfTheSignature123456789012',
  ALERT_SLACK_URL: `${receiver.url}/s3cret-slack`,
  ALERT_TEAMS_URL: `${receiver.url}/s3cret-teams`,
  ALERT_PING_URL: `${receiver.url}/s3cret-ping`,
  ALERT_SMTP_URL: `smtp://slotsync:pa55word@127.0.0.1:${mailServer.port}?tls=none`,
});

it('alerts test sends one message to each channel, reports each result, and names no secret', async () => {
  await world.configure(withAlerts(MAIL));
  expect(await commandsOf(world, channels()).read('alerts test')).toBe(
    'webhook: sent\nslack: sent\nteams: sent\nping: sent\nmail: sent\n',
  );
  const named = ['ping', 'slack', 'teams', 'webhook'].map((channel) => `/s3cret-${channel}`);
  expect(receiver.received.map((one) => one.path).toSorted()).toEqual(named);
  expect(mailServer.mails).toMatchObject([{ from: 'slotsync@campus.example', to: ['ops@campus.example'] }]);
  expect(mailServer.mails[0]?.source).toContain('Subject: slotsync: Test of this channel');

  receiver.answerNext(404, 404, 404, 404);
  const wrong = channels().ALERT_SMTP_URL.replace('pa55word', 'wr0ng');
  const failed = await world.run(['alerts', 'test'], { ...channels(), ALERT_SMTP_URL: wrong });
  expect(failed.code).toBe(1);
  expect(failed.stdout).toMatch(
    /slack: not sent: the receiver answered HTTP 404\n[^]*ping: not sent: the receiver answered HTTP 404\nmail: not sent: the mail server refused user and password/,
  );
  expect(failed.stdout + failed.stderr).not.toMatch(/s3cret|wr0ng|pa55word/);
});

it('a fault of the alert settings or configuration is named with its place, and without a secret', async () => {
  const { ALERT_WEBHOOK_URL, ALERT_SMTP_URL } = channels();
  // prettier-ignore
  const faults: [fault: string | RegExp, configuration: string, settings: Env, command?: string][] = [
    ['no alert channel is configured', CONFIGURATION, {}],
    ['ALERT_WEBHOOK_SECRET is not set', CONFIGURATION, { ALERT_WEBHOOK_URL }],
    ['alerts.mail: is missing', CONFIGURATION, { ALERT_SMTP_URL }],
    ['ALERT_SLACK_URL: must be https', CONFIGURATION, { ALERT_SLACK_URL: 'http://hooks.example/s3cret' }],
    [/alerts\.mail\.from: a mail address[^]*alerts\.mail\.to: at least one/, withAlerts(`{ mail: { from: 'nobody', to: [] } }`), {}],
    [/the configuration mails the report, but ALERT_SMTP_URL is not set[^]*report\.to: /, withReport(`{ to: ['dean@campus.example'] }`), {}, 'check'],
    [/report\.to\.0: a mail address such as 'ops@campus\.example', and nothing else[^]*report\.only: 'always' or 'whenSomething'/, withReport(`{ to: ['Dean <dean@campus.example>'], only: 'never' }`), {}],
    ["did you mean 'inboxMinutes'?", withAlerts(`{ inboxMinuts: 5 }`), {}],
  ];
  for (const [fault, configuration, settings, command = 'alerts test'] of faults) {
    await world.configure(configuration);
    const { code, stdout, stderr } = await world.run(command.split(' '), settings);
    expect(stderr).toMatch(fault);
    expect([code, stdout + stderr]).toEqual([2, expect.not.stringContaining('s3cret')]);
  }
});

it('alerts check sends a new alert once, and alerts lists what was sent', async () => {
  await world.configure(CONFIGURATION);
  const { ALERT_SLACK_URL } = channels();
  const withSlack = commandsOf(world, { ALERT_SLACK_URL });
  await withSlack.read('alerts check');
  await world.sql`
    INSERT INTO slotsync.drift (stream, local_key, kind, seen_at) VALUES ('rooms', 'R1', 'changed', now())`;
  for (const _ of ['first', 'second']) await withSlack.ends('alerts check', 1);
  expect(receiver.bodies().map(({ text }) => text)).toEqual([
    'slotsync: 1 object of rooms drifts at the service',
  ]);
  await withSlack.ends(
    'alerts',
    0,
    '1 object of rooms drifts at the service\n',
    /slack: sent \d{4}-/,
    '→ slotsync verify rooms --repair',
  );
  await world.sql`DELETE FROM slotsync.drift`;
});

it('a worker sends alerts and a heartbeat, and keeps working while a channel does not answer', async () => {
  await writeFile(path.join(world.folder, 'slack-url'), `${receiver.url}/slack\n`, { mode: 0o600 });
  receiver.answerNext('hang', 'hang');
  await world.sql`
    INSERT INTO slotsync.drift (stream, local_key, kind, seen_at) VALUES ('courses', '1', 'changed', now())`;
  const worker = await world.startWorker([], {
    ALERT_SLACK_URL_FILE: 'slack-url',
    ALERT_PING_URL: `${receiver.url}/ping`,
  });
  await receiver.untilReceived(2);
  expect(receiver.received.map((one) => one.path).toSorted()).toEqual(['/ping', '/slack']);
  await world.sql`UPDATE rooms SET name = 'changed' WHERE code = 'R2'`;
  await world.run(['push', 'rooms', 'R2']);
  await until(() => world.sandbox.object('room_R2'), { describe: 'the pushed room at the service' });
  worker.child.kill('SIGTERM');
  const { code, stderr } = await worker.finished;
  expect(code).toBe(0);
  expect(stderr).not.toContain(receiver.url);
});
