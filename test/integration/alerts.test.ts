// Guarantee 9
// Alerts: each cause is reported once to each channel, a failed message is retried, and no run waits for a channel.
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { readFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import postgres from 'postgres';
import { alertPeriodically, createHeartbeat } from '../../src/alerts/alert-periodically.js';
import { createChannels, SEND_WITHIN_MS, postWebhook } from '../../src/alerts/channels.js';
import { withDeadline } from '../../src/time/deadline.js';
import { sendMail } from '../../src/alerts/send-mail.js';
import { evaluateAlerts } from '../../src/alerts/evaluate-alerts.js';
import { sendDue, trySend, type AlertDeps } from '../../src/alerts/send-alerts.js';
import type { AlertSettings } from '../../src/config/settings.js';
import { claimMessages, listOpenAlerts, listUnsentNightly, noteAttempt } from '../../src/state/alerts.js';
import { rejectGates } from '../../src/state/gates/answers.js';
import { openState, type State } from '../../src/state/database.js';
import { listBadReadings, readRun } from '../../src/state/runs/read-runs.js';
import { pruneNotes } from '../../src/state/retention.js';
import { noteProblems } from '../../src/state/streams.js';
import { configSchema } from '../../src/streams/config-schema.js';
import { concerns } from '../../src/documents/concerns/concerns.js';
import { readReport } from '../../src/situation/report.js';
import { readSituation } from '../../src/situation/situation.js';
import { ROOMS } from '../support/campus.js';
import { createAuthority, type Authority } from '../support/certificates.js';
import { DRIPS, openDripping } from '../support/dripping.js';
import { settleAmidCollections } from '../support/garbage.js';
import { openMailServer } from '../support/mail-server.js';
import { verifyStandardWebhook } from '../support/standard-webhooks.js';
import { until } from '../support/wait.js';
import { openWebhookReceiver, type WebhookReceiver } from '../support/webhook-receiver.js';
import type { World } from '../support/world.js';
import { keepWorlds } from '../support/worlds.js';
import { OPERATOR } from '../support/operator.js';
import { holdRetirements } from '../support/stored-gates.js';

const SECRET = `whsec_${Buffer.from('a key of 24 bytes or more').toString('base64')}`;
const NO_CHANNEL: AlertSettings = {
  webhookUrl: undefined,
  webhookSecret: undefined,
  slackUrl: undefined,
  teamsUrl: undefined,
  smtpUrl: undefined,
  pingUrl: undefined,
};
const MESSAGE = { id: 'msg_1', body: { version: 1 } };
const never = new AbortController().signal;

const openWorld = keepWorlds();
let receiver: WebhookReceiver;
let world: World;
let others: State[] = [];

beforeEach(async () => {
  receiver = await openWebhookReceiver();
  world = await openWorld({ streams: { rooms: { ...ROOMS, key: 'code' } } });
  await world.sql`CREATE TABLE rooms (code text PRIMARY KEY, name text)`;
  await world.sql`INSERT INTO rooms VALUES ('A', 'Aula'), ('ada-lovelace', 'Ada Lovelace')`;
});
afterEach(async () => {
  for (const state of others) await state.close();
  others = [];
  await receiver.close();
});

/** Returns the dependencies of another process, with its own connection to the state. */
function alerting(settings: Partial<AlertSettings> = {}, rules: object = {}, mailed?: object): AlertDeps {
  const state = openState({ url: world.url });
  others.push(state);
  const parsed = configSchema.shape.alerts.parse(rules);
  const given = { webhookUrl: `${receiver.url}/hook`, webhookSecret: SECRET, ...settings };
  const report = configSchema.shape.report.parse(mailed);
  const channels = createChannels(
    { ...NO_CHANNEL, ...given, proxy: undefined },
    {
      mail: parsed.mail,
      report,
      readReport: async (runId) =>
        readReport(
          state.db,
          { nightly: await readRun(state.db, runId) },
          { streams: ['rooms'], requestsPerSecond: 20 },
        ),
      timeZone: async () => 'UTC',
    },
  );
  return { state, log: world.log, channels, rules: parsed, report, streams: ['rooms'], timeZone: 'UTC' };
}

/** Lets the service refuse one of two rows, so that the run is partial. */
async function failOne(): Promise<void> {
  world.sandbox.refuseObject('room_ada-lovelace', { status: 400, message: 'Ada Lovelace is no room' });
  await world.sync();
}

async function tell(deps: AlertDeps): Promise<void> {
  await evaluateAlerts(deps);
  await sendDue(deps, never);
}

/** Moves the end of every cause back by `minutes`. */
const letGo = (minutes: number) =>
  world.sql`UPDATE slotsync.alerts SET gone_since = gone_since - ${minutes} * interval '1 minute'`;

/** Makes every message due for its next attempt. */
const makeDue = () => world.sql`UPDATE slotsync.alert_messages SET next_at = now()`;
async function sendAgain(deps: AlertDeps): Promise<void> {
  await makeDue();
  await sendDue(deps, never);
}

const events = () => receiver.bodies().map(({ alerts: [alert] }) => alert.event as string);
const listMessages = async () => (await listOpenAlerts(world.state.db))[0]?.messages;

async function openMail(...args: Parameters<typeof openMailServer>) {
  const server = await openMailServer(...args);
  onTestFinished(() => server.close());
  return server;
}
const seeDrift = () =>
  world.sql`INSERT INTO slotsync.drift (stream, local_key, kind, seen_at) VALUES ('rooms', 'A', 'changed', now())`;
const scheduleNights = (daysAgo: number) => world.sql`
  INSERT INTO slotsync.schedules (name, pattern, timezone, registered_at)
  VALUES ('nightly', '0 2 * * *', 'UTC', now() - ${daysAgo} * interval '1 day')`;

describe('alerts', () => {
  it('report a cause once although two processes evaluate it, signed and without a key', async () => {
    await failOne();
    const [one, two] = [alerting(), alerting()];
    await Promise.all([evaluateAlerts(one), evaluateAlerts(two)]);
    await Promise.all([sendDue(one, never), sendDue(two, never)]);
    await tell(one);
    await tell(two);
    expect(receiver.received).toHaveLength(1);

    const [{ path, headers, text } = { path: '', headers: {}, text: '' }] = receiver.received;
    expect(path).toBe('/hook');
    verifyStandardWebhook(headers, text, SECRET);
    expect(receiver.bodies()[0]).toMatchObject({
      version: 1,
      alerts: [
        {
          event: 'opened',
          condition: 'run_partial',
          cause: 'run_partial sync rooms',
          title: 'Run 1 (sync) is partial: 1 record of rooms not accepted',
        },
      ],
    });
    expect(text).not.toMatch(/ada|lovelace/i);
    expect(world.lines.filter((line) => line.includes('alerts sent'))).toHaveLength(1);
  });

  it('report the end of a cause with what is not in sync, and report the cause anew when it recurs', async () => {
    await failOne();
    const deps = alerting();
    await tell(deps);
    await world.sync(); // dead: not sent again, so the run succeeds
    await tell(deps);
    await letGo(10);
    await tell(deps);
    await tell(deps);
    expect(events()).toEqual(['opened', 'recovered']);
    const [over] = receiver.bodies()[1].alerts;
    expect(over.title).toBe('Over: Run 1 (sync) is partial: 1 record of rooms not accepted');
    expect(over.details[0]).toMatch(/^The cause lasted /);
    expect(over.details[1]).toBe('1 record is not in sync: slotsync failures');
    await world.sql`UPDATE rooms SET name = 'other' WHERE code = 'ada-lovelace'`;
    await world.sync();
    await tell(deps);
    expect(receiver.bodies()[2].alerts[0]).toMatchObject({
      event: 'opened',
      cause: 'run_partial sync rooms',
    });
  });

  it('count a cause that comes and goes as one alert until it has been gone for ten minutes', async () => {
    const deps = alerting();
    const wait = (minutes: number) => world.sql`
      INSERT INTO slotsync.changes (stream, local_key, requested_at)
      VALUES ('rooms', 'A', now() - ${minutes} * interval '1 minute')`;
    const empty = () => world.sql`DELETE FROM slotsync.changes`;
    for (let round = 0; round < 3; round++) {
      await wait(61);
      await tell(deps);
      await empty();
      await tell(deps);
      await letGo(9);
      await tell(deps);
    }
    expect(events()).toEqual(['opened']);
    const [{ goneSince } = {}] = await listOpenAlerts(world.state.db);
    expect(goneSince).toBeInstanceOf(Date);
    await letGo(1);
    await tell(deps);
    expect(events()).toEqual(['opened', 'recovered']);
    const [over] = receiver.bodies()[1].alerts;
    expect(over.recoveredAt).toBe(new Date((goneSince as Date).getTime() - 60_000).toISOString());
    await wait(61);
    await tell(deps);
    expect(events()).toEqual(['opened', 'recovered', 'opened']);
  });

  it('recover at once when an operator decides a hold, so that the next hold is reported', async () => {
    const deps = alerting({}, { runs: ['held'] });
    await world.sql.unsafe(holdRetirements('rooms'));
    await tell(deps);
    await rejectGates(world.state.db, 1, {}, OPERATOR);
    await tell(deps);
    expect(events()).toEqual(['opened', 'recovered']);
  });

  it('retry a message after growing delays until the receiver takes it', async () => {
    await failOne();
    const deps = alerting();
    receiver.answerNext(500, 302);
    await tell(deps);
    const error = 'the receiver answered HTTP 500';
    expect(await listMessages()).toMatchObject([{ attempts: 1, sentAt: null, error }]);
    await sendDue(deps, never);
    expect(receiver.received).toHaveLength(1); // not before its time
    const gap = async () => {
      const [row] = await world.sql<{ seconds: number }[]>`
        SELECT extract(epoch FROM next_at - now())::int AS seconds FROM slotsync.alert_messages`;
      return row?.seconds ?? 0;
    };
    const first = await gap();
    await sendAgain(deps);
    expect(await gap()).toBeGreaterThan(first);
    expect(await listMessages()).toMatchObject([{ error: 'the receiver answered HTTP 302' }]);
    await sendAgain(deps);
    await sendAgain(deps);
    expect(receiver.received).toHaveLength(3);
    for (const { headers, text } of receiver.received) verifyStandardWebhook(headers, text, SECRET);
    expect(new Set(receiver.received.map(({ headers }) => headers['webhook-id'])).size).toBe(1);
    expect(await listMessages()).toMatchObject([{ attempts: 3, error: null, sentAt: expect.any(String) }]);
    expect(world.lines.join('\n')).not.toContain('/hook');
  });

  it('send a mail again only to the addresses that were refused', async () => {
    await failOne();
    let isFull = true;
    const server = await openMail({
      onRcptTo: ({ address }, _session, done) =>
        done(
          isFull && address.startsWith('night@')
            ? Object.assign(new Error('no'), { responseCode: 452 })
            : null,
        ),
    });
    const mail = { from: 'slotsync@campus.example', to: ['ops@campus.example', 'night@Münster.example'] };
    const smtpUrl = `smtp://127.0.0.1:${server.port}?tls=none`;
    const deps = alerting({ webhookUrl: undefined, webhookSecret: undefined, smtpUrl }, { mail });
    await tell(deps);
    const missing = ['night@Münster.example'];
    expect(await listMessages()).toMatchObject([
      { attempts: 1, sentAt: null, missing, error: 'the mail server refused 1 of 2 addresses' },
    ]);
    await sendAgain(deps);
    const error = 'the mail server refused the mail (EENVELOPE, it answered 452)';
    expect(await listMessages()).toMatchObject([{ attempts: 2, sentAt: null, missing, error }]);
    isFull = false;
    await seeDrift();
    await evaluateAlerts(deps); // another alert, which nobody has yet
    await sendAgain(deps);
    await sendAgain(deps);
    const sent = server.mails.map(({ to }) => to.toSorted().join(' ')).toSorted();
    expect(sent).toEqual([
      'night@münster.example',
      'night@münster.example ops@campus.example',
      'ops@campus.example',
    ]);
    expect(await listMessages()).toMatchObject([{ attempts: 3, missing: null, error: null }]);
    expect(world.lines.join('\n')).not.toMatch(/night@|ops@/);
  });

  it('send from another process a message whose process died after it claimed the message', async () => {
    await failOne();
    const deps = alerting();
    await evaluateAlerts(deps);
    expect(await claimMessages(deps.state.db, 'webhook', 10)).toHaveLength(1);
    await sendDue(deps, never);
    expect(receiver.received).toHaveLength(0); // the other may be sending it
    await sendAgain(alerting());
    expect(receiver.received).toHaveLength(1);
  });

  it('keep a message sent when the late attempt of a frozen process fails', async () => {
    await failOne();
    const deps = alerting();
    await evaluateAlerts(deps);
    const [message] = await claimMessages(deps.state.db, 'webhook', 10); // by a process that is then frozen
    await sendAgain(alerting());
    await noteAttempt(deps.state.db, [message?.id ?? 0], { problem: 'no answer in time', missing: null });
    expect(await listMessages()).toMatchObject([{ error: null }]);
    await sendAgain(deps);
    expect(receiver.received).toHaveLength(1);
  });

  it('reach a worker with a channel when a command without a channel opened them', async () => {
    await failOne();
    const without = { ...alerting(), channels: [] };
    await tell(without);
    expect(await listOpenAlerts(world.state.db)).toMatchObject([{ messages: [] }]);
    await tell(alerting());
    await tell(alerting());
    expect(events()).toEqual(['opened']);
  });

  it('stop evaluating at a locked table instead of waiting for its lock', async () => {
    const blocker = postgres(world.url, { max: 1 });
    onTestFinished(() => blocker.end());
    await blocker.unsafe('BEGIN; LOCK TABLE slotsync.drift');
    await expect(evaluateAlerts(alerting())).rejects.toMatchObject({ facts: { sqlstate: '55P03' } });
    await blocker.unsafe('ROLLBACK');
    expect(await evaluateAlerts(alerting())).toBe(true);
  });

  it('delay no stop of a process when the state does not answer', async () => {
    let isAsked = false;
    const transaction = () => ((isAsked = true), new Promise<never>(() => undefined));
    const state = { ...world.state, db: { transaction } } as unknown as State;
    const loop = alertPeriodically({ ...alerting(), state, maySend: () => true });
    await until(() => isAsked, { describe: 'an evaluation' });
    await loop.stop(3_600_000);
  });

  it('report a cause that ended before its report once, as over', async () => {
    await failOne();
    const deps = alerting();
    receiver.answerNext(500);
    await tell(deps);
    await world.sync();
    await evaluateAlerts(deps);
    await letGo(10);
    await evaluateAlerts(deps);
    await sendAgain(deps);
    expect(receiver.bodies().at(-1).alerts).toMatchObject([{ event: 'recovered' }]);
    await sendAgain(deps);
    expect(receiver.received).toHaveLength(2);
  });

  it('delay neither another channel nor a run when a receiver does not answer', async () => {
    await failOne();
    const deps = alerting({ slackUrl: `${receiver.url}/slack`, teamsUrl: `${receiver.url}/teams` });
    await evaluateAlerts(deps);
    receiver.answerNext('hang', 'hang');
    const stopping = new AbortController();
    const sending = sendDue(deps, stopping.signal);
    await receiver.untilReceived(3);
    await world.sql`INSERT INTO rooms VALUES ('B', 'new')`;
    expect((await world.sync()).run.status).toBe('succeeded');
    expect(world.fieldsOf('room_B')).toEqual({ 'room.name': 'new' });
    stopping.abort();
    await sending;
    const unsent = (await listMessages())?.filter(({ sentAt }) => sentAt === null);
    expect(unsent?.map(({ error }) => error)).toEqual(Array(2).fill('the process was stopped'));
    expect(receiver.received.map(({ path }) => path).toSorted()).toEqual(['/hook', '/slack', '/teams']);
    const bodyOf = (path: string) =>
      JSON.parse(receiver.received.find((one) => one.path === path)?.text ?? '');
    expect(bodyOf('/slack').text).toBe('slotsync: Run 1 (sync) is partial: 1 record of rooms not accepted');
    expect(bodyOf('/teams').attachments[0].content.type).toBe('AdaptiveCard');
  });

  it('distinguish a receiver that takes a request but does not answer from an unreachable one', async () => {
    const post = (url: string) => postWebhook({ url, proxy: undefined, timeoutMs: 50 }, MESSAGE, never);
    receiver.answerNext('hang');
    await expect(post(`${receiver.url}/hook`)).rejects.toThrow(
      'the receiver accepted the request, but did not answer in time (UND_ERR_HEADERS_TIMEOUT)',
    );
    const closing = createServer((socket) => socket.once('data', () => socket.destroy()));
    closing.listen(0, '127.0.0.1');
    await until(() => closing.listening, { describe: 'a port' });
    const url = `http://127.0.0.1:${(closing.address() as AddressInfo).port}/hook`;
    await expect(post(url)).rejects.toThrow(
      'the receiver closed the connection before it answered (UND_ERR_SOCKET)',
    );
    closing.close();
    await until(() => !closing.listening, { describe: 'the port to be free' });
    await expect(post(url)).rejects.toThrow('the receiver cannot be reached (ECONNREFUSED)');
  });

  it('give up a receiver that never answers in time, despite garbage collection', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    try {
      const mute = {
        name: 'webhook' as const,
        subject: 'alerts' as const,
        send: () => new Promise<never>(() => undefined),
      };
      const trying = trySend(mute, { id: 'msg_1', organization: null, alerts: [] }, { signal: never });
      vi.advanceTimersByTime(SEND_WITHIN_MS);
      vi.useRealTimers();
      expect(await settleAmidCollections(trying)).toMatchObject({ value: { problem: 'no answer in time' } });
    } finally {
      vi.useRealTimers();
    }
  });

  it.each(Object.entries(DRIPS))(
    'close in time the connection of an answer whose %s drips, despite garbage collection',
    async (part, answer) => {
      const dripping = await openDripping(answer);
      const hook = { url: dripping.url, proxy: undefined, timeoutMs: 600_000 };
      // The head says that it is sent: a body is not waited for.
      const [ms, ended] =
        part === 'head'
          ? [300, { reason: { message: 'no answer in time' } }]
          : [60_000, { status: 'fulfilled' }];
      const posting = withDeadline({ ms }, (signal) => postWebhook(hook, MESSAGE, signal));
      expect(await settleAmidCollections(posting)).toMatchObject(ended);
      await expect.poll(dripping.openCount).toBe(0);
      await dripping.close();
    },
  );

  it('report holds, drift, inbox and stops in one message', async () => {
    await world.sync();
    await seeDrift();
    await world.sql`
      INSERT INTO slotsync.changes (stream, local_key, requested_at) VALUES ('rooms', 'A', now() - interval '2 hours')`;
    await world.sql`
      INSERT INTO slotsync.processes (id, command, host, pid, stopped_since, error_code, error_message)
      VALUES ('p', 'worker', 'h', 1, now() - interval '20 minutes', 'unauthorized', 'Ada')`;
    await scheduleNights(3);
    await world.sql`UPDATE slotsync.streams SET synced_at = now() - interval '2 days'`;
    await world.sql`DELETE FROM rooms`;
    await tell(alerting());
    const [{ alerts }] = receiver.bodies();
    expect(alerts.map(({ cause }: { cause: string }) => cause)).toEqual([
      'sending_stopped unauthorized',
      'no_success sync',
      'drift rooms',
      'inbox rooms',
    ]);
    await tell(alerting());
    expect(receiver.received).toHaveLength(1);
  });

  it('count a sync of some streams as no successful sync', async () => {
    await scheduleNights(3);
    const syncWhole = (stream: string) => world.sql`
      INSERT INTO slotsync.streams AS s (stream, attempted_at, synced_at) VALUES (${stream}, now(), now())
      ON CONFLICT (stream) DO UPDATE SET synced_at = now()`;
    await world.sql`INSERT INTO slotsync.streams (stream, attempted_at) VALUES ('courses', now())`;
    const open = async () => {
      await evaluateAlerts({ ...alerting(), streams: ['rooms', 'courses'] });
      const alerts = await listOpenAlerts(world.state.db);
      return alerts.filter(({ goneSince }) => goneSince === null).map(({ cause }) => cause);
    };
    /** `status` reads no configuration: the streams are those of the records. */
    const shown = async () => concerns(await readSituation(world.state.db)).map(({ kind }) => kind);
    await world.sql`
      INSERT INTO slotsync.records (stream, local_key, status) VALUES ('rooms', 'A', 'synced'), ('courses', '1', 'synced')`;
    await syncWhole('rooms');
    expect(await open()).toEqual(['no_success sync', 'no_worker']);
    expect(await shown()).toContain('no_success');
    await syncWhole('courses');
    expect(await shown()).not.toContain('no_success');
    expect(await open()).toEqual(['no_worker']);
    await world.sql`UPDATE slotsync.streams SET synced_at = NULL, attempted_at = NULL WHERE stream = 'courses'`;
    expect(await open()).toEqual(['no_worker']); // courses were configured after the sync
  });

  it('are found alike by a worker whose clock is fast', async () => {
    await world.sql`
      INSERT INTO slotsync.processes (id, command, host, pid, stopped_since, error_code, error_message)
      VALUES ('p', 'worker', 'h', 1, now() - interval '5 minutes', 'unauthorized', 'HTTP 401')`;
    await scheduleNights(0);
    const deps = alerting();
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 3 * 24 * 60 * 60 * 1000 });
    onTestFinished(() => void vi.useRealTimers());
    await evaluateAlerts(deps);
    vi.useRealTimers();
    expect(await listOpenAlerts(world.state.db)).toEqual([]);
  });

  it('are deleted 90 days after their end', async () => {
    await failOne();
    const deps = alerting();
    await tell(deps);
    await world.sql`UPDATE slotsync.alerts SET recovered_at = now() - interval '89 days'`;
    await pruneNotes(world.state.db);
    const count = async () => (await world.sql`SELECT FROM slotsync.alerts, slotsync.alert_messages`).length;
    expect(await count()).toBe(1);
    await world.sql`UPDATE slotsync.alerts SET recovered_at = now() - interval '91 days'`;
    await pruneNotes(world.state.db);
    expect(await count()).toBe(0);
  });

  it('log that the state does not answer, and continue', async () => {
    const deps = alerting();
    const state = openState({ url: 'postgres://nobody@127.0.0.1:1/none' });
    others.push(state);
    const loop = alertPeriodically({ ...deps, state, maySend: () => true });
    await until(() => world.lines.some((line) => line.includes('alerts could not be evaluated')), {
      describe: 'the line that says so',
    });
    await loop.stop();
    expect(receiver.received).toEqual([]);
  });
});

describe('nightly runs', () => {
  const pings = () => receiver.received.map(({ method, path }) => `${method} ${path.replace(/=.*/, '=')}`);
  const pinging = (changes: Partial<AlertSettings> = {}) =>
    alerting({ webhookUrl: undefined, pingUrl: `${receiver.url}/p1ng`, ...changes });
  const channelOf = ({ channels }: AlertDeps) => channels[0] as (typeof channels)[0];
  const startNightly = () => world.sql`
    INSERT INTO slotsync.runs (kind, lane, started_by, status, streams)
    VALUES ('sync', 'sync', 'schedule', 'running', '{rooms}')`;
  const endRun = async (status: 'succeeded' | 'failed') => {
    const [run] = await world.sql<{ id: number }[]>`
      UPDATE slotsync.runs SET status = ${status}, finished_at = now() WHERE finished_at IS NULL RETURNING id::int`;
    if (status === 'succeeded' || !run) return;
    const problem = { runId: run.id, runKind: 'sync', isWhole: true, failed: 0, dead: 0 } as const;
    await noteProblems(world.state.db, ['rooms'], { ...problem, status, code: 'timeout', message: null });
  };
  const listLines = (message: string) => world.lines.filter((line) => line.includes(message));

  it('ping their start and their end once each, although two processes evaluate them', async () => {
    const [one, two] = [pinging(), pinging()];
    const tellBoth = async () => {
      await Promise.all([tell(one), tell(two)]);
      await Promise.all([tell(one), tell(two)]);
    };
    await world.sync(); // of a command
    await tellBoth();
    expect(pings()).toEqual([]);
    await startNightly();
    await tellBoth();
    expect(pings()).toEqual(['GET /p1ng/start?rid=']);
    await endRun('succeeded');
    await tellBoth();
    expect(pings()).toEqual(['GET /p1ng/start?rid=', 'GET /p1ng?rid=']);
    const [uuid, ...others] = receiver.received.map(({ path }) => path.split('=')[1]);
    expect(uuid).toMatch(/^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/);
    expect(others).toEqual([uuid]);
    const open = await listOpenAlerts(world.state.db);
    expect(open.map(({ condition }) => condition)).not.toContain('nightly_run');
    expect(world.lines.join('\n')).not.toContain('p1ng');
  });

  it('ping a failure when they end badly, which heartbeats repeat until a later run replaces it', async () => {
    const deps = pinging();
    const beat = createHeartbeat(channelOf(deps), { ...deps, maySend: () => true }, never);
    await startNightly();
    await endRun('failed');
    await tell(deps); // it began and ended between two evaluations
    await beat();
    expect(pings()).toEqual(['GET /p1ng/fail?rid=', 'GET /p1ng/fail']);
    await world.sync();
    await beat();
    expect(pings().slice(2)).toEqual(['GET /p1ng']);
  });

  it('ping only for the latest night, and not for a run that ended long ago', async () => {
    await startNightly();
    await endRun('failed');
    await world.sql`UPDATE slotsync.runs SET finished_at = now() - interval '25 hours'`;
    await tell(pinging());
    expect(pings()).toEqual([]);
    await startNightly();
    await tell(pinging());
    expect(pings()).toEqual(['GET /p1ng/start?rid=']);
  });

  it.each([
    ['a query unchanged, for success only', '?status=up', [], '/p1ng?status=up'],
    [
      '`create` at the path of each outcome, before the query',
      '?create=1',
      ['/p1ng/start?create=1&rid=', '/p1ng/fail?create=1&rid=', '/p1ng/fail?create=1'],
      '/p1ng?create=1',
    ],
  ])('ping an address with %s', async (_, query, badNight, success) => {
    const deps = pinging({ pingUrl: `${receiver.url}/p1ng${query}` });
    const beat = createHeartbeat(channelOf(deps), { ...deps, maySend: () => true }, never);
    const paths = () => receiver.received.map(({ path }) => path.replace(/rid=[-0-9a-f]{36}$/, 'rid='));
    await startNightly();
    await tell(deps);
    await endRun('failed');
    await tell(deps);
    await beat();
    expect(paths()).toEqual(badNight);
    await world.sync();
    await beat();
    expect(paths().at(-1)).toBe(success);
  });

  it('ping nothing from a worker that may not send, and log a failing address once', async () => {
    const deps = pinging();
    let maySend = false;
    const beat = createHeartbeat(channelOf(deps), { ...deps, maySend: () => maySend }, never);
    await beat();
    expect(pings()).toEqual([]);
    maySend = true;
    receiver.answerNext(500, 302);
    for (const _ of [500, 302, 200, 200]) await beat();
    expect(pings()).toHaveLength(4);
    expect(listLines('heartbeat could not be sent')).toEqual([
      expect.stringContaining('the receiver answered HTTP 500'),
    ]);
    expect(listLines('heartbeat sent again after failures')).toHaveLength(1);
    expect(world.lines.join('\n')).not.toContain('p1ng');
  });

  it('list a hanging or unknown ping address until it takes a ping, and delay no other channel', async () => {
    await failOne();
    const deps = pinging({ webhookUrl: `${receiver.url}/hook` });
    await startNightly();
    await evaluateAlerts(deps);
    receiver.answerNext('hang', 'hang');
    const stopping = new AbortController();
    const sending = sendDue(deps, stopping.signal);
    await receiver.untilReceived(2);
    stopping.abort();
    await sending;
    const messages = async () => (await listUnsentNightly(world.state.db))[0]?.messages;
    expect(await messages()).toMatchObject([
      { channel: 'ping', attempts: 1, error: 'the process was stopped' },
    ]);
    await sendAgain(pinging({ pingUrl: 'https://nowhere.invalid/p1ng' }));
    expect(await messages()).toMatchObject([
      { channel: 'ping', attempts: 2, error: expect.stringMatching(/^the receiver cannot be reached \(E/) },
    ]);
    await sendAgain(deps);
    expect(await messages()).toBeUndefined();
    expect(pings().filter((ping) => ping.startsWith('GET'))).toEqual([
      'GET /p1ng/start?rid=',
      'GET /p1ng/start?rid=',
    ]);
  });

  it('are reported by mail once each, as text and HTML, and again if the mail was not taken', async () => {
    await failOne();
    await world.sql`UPDATE slotsync.runs SET started_by = 'schedule'`;
    const answers = [452];
    const server = await openMail({
      onRcptTo: (_address, _session, done) => {
        const responseCode = answers.shift();
        done(responseCode === undefined ? null : Object.assign(new Error('no'), { responseCode }));
      },
    });
    const smtpUrl = `smtp://127.0.0.1:${server.port}?tls=none`;
    const rules = { runs: [], mail: { from: 'slotsync@campus.example', to: ['ops@campus.example'] } };
    const mailing = (only: string) =>
      alerting({ webhookUrl: undefined, smtpUrl }, rules, { to: ['dean@campus.example'], only });
    await tell(mailing('whenSomething'));
    expect(server.mails).toEqual([]);
    expect((await listUnsentNightly(world.state.db))[0]?.messages).toMatchObject([
      { channel: 'report', attempts: 1, error: expect.stringContaining('it answered 452') },
    ]);
    await makeDue();
    await Promise.all([tell(mailing('always')), tell(mailing('always'))]);
    await tell(mailing('always'));
    expect(server.mails).toMatchObject([{ to: ['dean@campus.example'] }]);
    const source = (server.mails[0]?.source ?? '').replaceAll('=\r\n', ''); // without soft line breaks
    expect(source).toContain('Subject: slotsync: Nightly sync, run 1: partial, needs a person: 1');
    expect(source).toMatch(
      /multipart\/alternative[^]*Content-Type: text\/plain[^]*since the nightly sync\s+started[^]*Content-Type: text\/html[^]*<h2>Needs a person<\/h2>/,
    );

    await world.sql`DELETE FROM rooms WHERE code <> 'A'`;
    await world.sql`TRUNCATE slotsync.records`;
    for (const only of ['whenSomething', 'always']) {
      await world.sync();
      await world.sql`UPDATE slotsync.runs SET started_by = 'schedule', status = 'succeeded'`;
      await tell(mailing(only));
    }
    const subjects = server.mails.map((mail) => /^Subject: (.*)$/m.exec(mail.source)?.[1]);
    expect(subjects.slice(1)).toEqual(['slotsync: Nightly sync, run 3: succeeded']);
  });
});

describe('a failed reconcile or verify', () => {
  const WINDOW = (days: number) => `'{"from": "2026-03-0${days}", "to": "2036-09-0${days}"}'`;
  const CHANGES = (hour: number) =>
    `'{"from": "2026-03-02T0${hour}:00:00Z", "to": "2026-03-02T0${hour + 1}:00:00Z"}'`;
  it.each([
    ['is replaced by the next window after a window', 'reconcile', WINDOW(1), WINDOW(2), 0],
    ['is not replaced by changes after a window', 'reconcile', WINDOW(1), CHANGES(1), 1],
    ['is replaced by the next changes after changes', 'reconcile', CHANGES(1), CHANGES(2), 0],
    ['is replaced by a window after changes', 'reconcile', CHANGES(1), WINDOW(2), 0],
    ['is replaced by a whole verify after a sample', 'verify', `'{"sample": 10}'`, 'NULL', 0],
    ['is not replaced by a sample after a whole verify', 'verify', 'NULL', `'{"sample": 10}'`, 1],
  ])('%s', async (_, kind, failed, later, left) => {
    await world.sql.unsafe(`
      INSERT INTO slotsync.runs (kind, lane, started_by, status, streams, range, error_code, finished_at)
      VALUES ('${kind}', 'sync', 'schedule', 'failed', '{}', ${failed}, 'service_failed', now())`);
    expect(await listBadReadings(world.state.db)).toHaveLength(1);
    await world.sql.unsafe(`
      INSERT INTO slotsync.runs (kind, lane, started_by, status, streams, range, finished_at)
      VALUES ('${kind}', 'sync', 'schedule', 'succeeded', '{}', ${later}, now())`);
    expect(await listBadReadings(world.state.db)).toHaveLength(left);
  });
});

describe('a mail', () => {
  let authority: Authority;
  let certificate: { cert: string; key: string };
  beforeAll(async () => {
    authority = await createAuthority();
    certificate = await authority.issue('mail', ['DNS:localhost']);
  });
  afterAll(() => authority.remove());

  const MAIL = {
    from: 'slotsync@campus.example',
    to: ['ops@campus.example', 'night@campus.example'],
    subject: 'slotsync: 2 alerts',
    text: 'as text',
    html: '<p>as HTML</p>',
  };
  const login = { user: 'slot@sync', password: 'p%ss' };

  it.each([
    ['STARTTLS', 'smtp', false],
    ['TLS from the start', 'smtps', true],
  ])('is sent with %s and a login', async (_, scheme, secure) => {
    const server = await openMail({ certificate, secure, login });
    const url = `${scheme}://slot%40sync:p%25ss@localhost:${server.port}`;
    const ca = readFileSync(authority.ca, 'utf8');
    await sendMail({ url, timeoutMs: 60_000, ca }, MAIL, never);
    const [mail] = server.mails;
    expect(mail).toMatchObject({ from: MAIL.from, to: MAIL.to, user: login.user, isEncrypted: true });
    expect(mail?.source).toMatch(/^Subject: slotsync: 2 alerts\r?$/m);
    expect(mail?.source).toContain('as text');
    expect(mail?.source).toContain('<p>as HTML</p>');
    // Node does not know the authority.
    const refused = sendMail({ url, timeoutMs: 60_000 }, MAIL, never);
    await expect(refused).rejects.toThrow(/\((SELF_SIGNED|UNABLE_TO)\w+\)$/);
    const wrong = url.replace('p%25ss', 'wrong');
    await expect(sendMail({ url: wrong, timeoutMs: 60_000, ca }, MAIL, never)).rejects.toThrow(
      'the mail server refused user and password (EAUTH, it answered 535)',
    );
    expect(server.mails).toHaveLength(1);
  });

  it('is not sent without encryption unless the address says tls=none', async () => {
    const server = await openMail();
    const url = `smtp://localhost:${server.port}`;
    await expect(sendMail({ url, timeoutMs: 60_000 }, MAIL, never)).rejects.toThrow(
      /^no encrypted connection/,
    );
    expect(server.mails).toEqual([]);
    await sendMail({ url: `${url}?tls=none`, timeoutMs: 60_000 }, MAIL, never);
    expect(server.mails).toMatchObject([{ isEncrypted: false }]);
  });

  it('is given up at its timeout or at a stop when the server never speaks', async () => {
    const mute = createServer().listen(0, '127.0.0.1');
    await until(() => mute.listening, { describe: 'a port' });
    const url = `smtp://127.0.0.1:${(mute.address() as AddressInfo).port}?tls=none`;
    await expect(sendMail({ url, timeoutMs: 50 }, MAIL, never)).rejects.toThrow(
      /did not answer in time \(ETIMEDOUT/,
    );
    await expect(sendMail({ url, timeoutMs: 600_000 }, MAIL, AbortSignal.abort())).rejects.toThrow('in time');
    mute.close();
    await until(() => !mute.listening, { describe: 'the port to be free' });
    await expect(sendMail({ url, timeoutMs: 60_000 }, MAIL, never)).rejects.toThrow('(ECONNREFUSED)');
  });

  it.each([
    ['greeting', '220-'],
    ['answer to a command', '220 ready\r\n250-'],
  ])('is given up in time when the %s of the server drips, despite garbage collection', async (_, first) => {
    const dripping = await openDripping({ first, part: 'x' });
    const url = `smtp://127.0.0.1:${dripping.port}?tls=none`;
    const sending = withDeadline({ ms: 300 }, (signal) =>
      sendMail({ url, timeoutMs: 600_000 }, MAIL, signal),
    );
    expect(await settleAmidCollections(sending)).toMatchObject({ reason: { message: 'no answer in time' } });
    await expect.poll(dripping.openCount).toBe(0);
    await dripping.close();
  });
});
