// Guarantee 9
// The command `alerts`, and a worker that sends alerts.
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import { openMailServer, type MailServer } from '../support/mail-server.js';
import { CONFIGURATION, rehearse, type Rehearsal } from '../support/rehearsal.js';
import { until } from '../support/wait.js';
import { openWebhookReceiver, type WebhookReceiver } from '../support/webhook-receiver.js';

let world: Rehearsal;
let mailServer: MailServer;
let receiver: WebhookReceiver;

const withAlerts = (text: string) => CONFIGURATION.replace('streams: {', `alerts: ${text},\n  streams: {`);
const withReport = (text: string) => CONFIGURATION.replace('streams: {', `report: ${text},\n  streams: {`);
const MAIL = `{ mail: { from: 'slotsync@campus.example', to: ['ops@campus.example'] } }`;

beforeAll(async () => {
  world = await rehearse({ rows: 5, sandbox: { rate: 0 } });
  mailServer = await openMailServer({ login: { user: 'slotsync', password: 'pa55word' } });
});
afterAll(async () => {
  await mailServer.close();
  await world.close();
});
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
  const sent = await world.run(['alerts', 'test'], channels());
  expect(sent).toMatchObject({
    code: 0,
    stdout: 'webhook: sent\nslack: sent\nteams: sent\nping: sent\nmail: sent\n',
  });
  expect(receiver.received.map((one) => one.path).toSorted()).toEqual([
    '/s3cret-ping',
    '/s3cret-slack',
    '/s3cret-teams',
    '/s3cret-webhook',
  ]);
  expect(mailServer.mails).toMatchObject([{ from: 'slotsync@campus.example', to: ['ops@campus.example'] }]);
  expect(mailServer.mails[0]?.source).toContain('Subject: slotsync: Test of this channel');

  receiver.answerNext(404, 404, 404, 404);
  const wrong = channels().ALERT_SMTP_URL.replace('pa55word', 'wr0ng');
  const failed = await world.run(['alerts', 'test'], { ...channels(), ALERT_SMTP_URL: wrong });
  expect(failed.code).toBe(1);
  expect(failed.stdout).toContain('slack: not sent: the receiver answered HTTP 404\n');
  expect(failed.stdout).toContain('ping: not sent: the receiver answered HTTP 404\n');
  expect(failed.stdout).toContain('mail: not sent: the mail server refused user and password');
  expect(failed.stdout + failed.stderr).not.toMatch(/s3cret|wr0ng|pa55word/);
});

it('a fault of the alert settings or configuration is named with its place, and without a secret', async () => {
  const refused = async (
    configuration: string,
    changes: Record<string, string>,
    command: string[] = ['alerts', 'test'],
  ) => {
    await world.configure(configuration);
    const { code, stderr } = await world.run(command, changes);
    expect(code, stderr).toBe(2);
    expect(stderr).not.toContain('s3cret');
    return stderr;
  };
  const { ALERT_WEBHOOK_URL, ALERT_SMTP_URL } = channels();
  expect(await refused(CONFIGURATION, {})).toContain('no alert channel is configured');
  expect(await refused(CONFIGURATION, { ALERT_WEBHOOK_URL })).toContain('ALERT_WEBHOOK_SECRET is not set');
  expect(await refused(CONFIGURATION, { ALERT_SMTP_URL })).toContain('alerts.mail: is missing');
  expect(await refused(CONFIGURATION, { ALERT_SLACK_URL: 'http://hooks.example/s3cret' })).toContain(
    'ALERT_SLACK_URL: must be https',
  );
  expect(await refused(withAlerts(`{ mail: { from: 'nobody', to: [] } }`), {})).toMatch(
    /alerts\.mail\.from: a mail address[^]*alerts\.mail\.to: at least one/,
  );
  expect(await refused(withReport(`{ to: ['dean@campus.example'] }`), {}, ['check'])).toMatch(
    /the configuration mails the report, but ALERT_SMTP_URL is not set[^]*report\.to: /,
  );
  expect(await refused(withReport(`{ to: ['Dean <dean@campus.example>'], only: 'never' }`), {})).toMatch(
    /report\.to\.0: a mail address such as 'ops@campus\.example', and nothing else[^]*report\.only: 'always' or 'whenSomething'/,
  );
  expect(await refused(withAlerts(`{ inboxMinuts: 5 }`), {})).toContain("did you mean 'inboxMinutes'?");
});

it('alerts check sends a new alert once, and alerts lists what was sent', async () => {
  await world.configure(CONFIGURATION);
  const { ALERT_SLACK_URL } = channels();
  expect(await world.run(['alerts', 'check'], { ALERT_SLACK_URL })).toMatchObject({ code: 0 });
  await world.sql`
    INSERT INTO slotsync.drift (stream, local_key, kind, seen_at) VALUES ('rooms', 'R1', 'changed', now())`;
  expect(await world.run(['alerts', 'check'], { ALERT_SLACK_URL })).toMatchObject({ code: 1 });
  expect(await world.run(['alerts', 'check'], { ALERT_SLACK_URL })).toMatchObject({ code: 1 });
  expect(receiver.bodies().map(({ text }) => text)).toEqual([
    'slotsync: 1 object of rooms drifts at the service',
  ]);
  const { code, stdout } = await world.run(['alerts'], { ALERT_SLACK_URL });
  expect(code).toBe(0);
  expect(stdout).toContain('1 object of rooms drifts at the service\n');
  expect(stdout).toMatch(/slack: sent \d{4}-/);
  expect(stdout).toContain('→ slotsync verify rooms --repair');
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
