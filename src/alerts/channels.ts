// Channels that alerts are sent to. A channel is enabled by the setting that has its address.
import { UsageError, codeOf } from '../errors/errors.js';
import { currentText, type SettingText } from '../config/setting-text.js';
import type { AlertSettings, ProxySettings } from '../config/settings.js';
import { documentToMail, toDocument, toJsonBody, toSlackBody, toTeamsBody } from './formats.js';
import { reportDocument } from '../documents/report.js';
import type { ReportFacts } from '../situation/report.js';
import type { AlertRules } from '../documents/concerns/concern.js';
import type { Document } from '../documents/document.js';
import { subjectOf, type NightlyEvent, type Notice } from './notice.js';
import type { ParsedConfig } from '../streams/config-schema.js';
import { createHmac } from 'node:crypto';
import { openConnections } from '../destination/connections.js';

type ChannelName = 'webhook' | 'slack' | 'teams' | 'mail' | 'ping' | 'report';
/** Kind of messages that a channel sends. */
type Subject = 'alerts' | 'nightly runs' | 'ends of nightly runs';

export interface Channel {
  name: ChannelName;
  subject: Subject;
  /**
   * Sends a notice to `missing`, as far as these addresses are still configured, or to all addresses if null. Throws an
   * Error without secrets if the notice did not arrive, or SentInPart if only some addresses did not get it.
   */
  send: (notice: Notice, signal: AbortSignal, missing?: readonly string[] | null) => Promise<void>;
}

export const namesOf = (channels: readonly Channel[], subject: Subject): ChannelName[] =>
  channels.filter((channel) => channel.subject === subject).map(({ name }) => name);

/** Time limit of each step of a send, in milliseconds. The whole send has `SEND_WITHIN_MS`. */
const STEP_WITHIN_MS = 10_000;
/**
 * Time limit of a whole send in milliseconds. Shorter than the gap before a retry, so that two sends never overlap.
 */
export const SEND_WITHIN_MS = 20_000;

interface Configured extends Pick<AlertRules, 'mail'> {
  report: ParsedConfig['report'];
  /**
   * Reads the report since a nightly run. Called at each attempt, so that the state need not store keys for a retry.
   */
  readReport: (runId: number) => Promise<ReportFacts>;
  timeZone: () => Promise<string>;
}

/** Throws UsageError if a mail server is set and the configuration has no recipients, or only the latter are set. */
export function createChannels(
  settings: AlertSettings & { proxy: ProxySettings | undefined },
  { mail, report, readReport, timeZone }: Configured,
): Channel[] {
  const { webhookUrl, webhookSecret, slackUrl, teamsUrl, smtpUrl, pingUrl, proxy } = settings;
  const web = (
    url: SettingText | undefined,
    channel: Omit<Channel, 'send'>,
    send: (to: WebAddress, notice: Notice, signal: AbortSignal) => Promise<void>,
  ): Channel[] => {
    if (url === undefined) return [];
    const to = () => ({ url: currentText(url), proxy, timeoutMs: STEP_WITHIN_MS });
    return [{ ...channel, send: (notice, signal) => send(to(), notice, signal) }];
  };
  const webhook = (
    name: ChannelName,
    url: SettingText | undefined,
    toBody: (notice: Notice) => unknown,
    secret?: SettingText,
  ) =>
    web(url, { name, subject: 'alerts' }, (to, notice, signal) => {
      const message = { id: notice.id, body: toBody(notice) };
      return postWebhook({ ...to, secret: secret && currentText(secret) }, message, signal);
    });
  if (report !== undefined && smtpUrl === undefined)
    throw new UsageError('the configuration mails the report, but ALERT_SMTP_URL is not set', {
      faults: ['report.to: the report is sent through the mail server of alerts, from alerts.mail.from'],
      remedy: 'Set ALERT_SMTP_URL, or remove report from the configuration.',
    });
  if (smtpUrl !== undefined && mail === undefined)
    throw new UsageError('ALERT_SMTP_URL is set, but the configuration names no recipients', {
      faults: ["alerts.mail: is missing: { from: 'slotsync@campus.example', to: ['ops@campus.example'] }"],
      remedy: 'Add alerts.mail to the configuration, or unset ALERT_SMTP_URL.',
    });
  const reportOr = async (notice: Notice): Promise<Document> =>
    notice.nightly?.run ? reportDocument(await readReport(notice.nightly.run.id)) : toDocument(notice);
  const mailTo = (
    channel: Omit<Channel, 'send'>,
    to: readonly string[],
    compose: (notice: Notice) => Document | Promise<Document>,
  ): Channel[] => {
    if (smtpUrl === undefined || mail === undefined) return [];
    const { from } = mail;
    const send: Channel['send'] = async (notice, signal, missing = null) => {
      const { addressesAmong, sendMail } = await import('./send-mail.js');
      const recipients = missing === null ? to : addressesAmong(to, missing);
      if (recipients.length === 0) return;
      const subject = `slotsync: ${subjectOf(notice)}`;
      const body = documentToMail(await compose(notice), await timeZone());
      const server = { url: currentText(smtpUrl), timeoutMs: STEP_WITHIN_MS };
      await sendMail(server, { from, to: recipients, subject, ...body }, signal);
    };
    return [{ ...channel, send }];
  };
  return [
    ...webhook('webhook', webhookUrl, toJsonBody, webhookSecret),
    ...webhook('slack', slackUrl, toSlackBody),
    ...webhook('teams', teamsUrl, toTeamsBody),
    ...web(pingUrl, { name: 'ping', subject: 'nightly runs' }, (to, { nightly }, signal) =>
      ping(to, nightly, signal),
    ),
    ...mailTo({ name: 'mail', subject: 'alerts' }, mail?.to ?? [], toDocument),
    ...(report ? mailTo({ name: 'report', subject: 'ends of nightly runs' }, report.to, reportOr) : []),
  ];
}

/** Outcome that a ping reports. A notice without a nightly run only tests the address. */
function outcomeOf(nightly: NightlyEvent | undefined): 'start' | 'success' | 'fail' {
  if (nightly === undefined) return 'success';
  if (!nightly.hasEnded) return 'start';
  return nightly.isBad ? 'fail' : 'success';
}

interface WebAddress {
  /** Secret, so no error repeats the address. */
  url: string;
  proxy: ProxySettings | undefined;
  timeoutMs: number;
}

/**
 * Posts JSON, signed if there is a secret. Throws an Error with the reason if the message did not arrive. `id` stays the
 * same at every attempt.
 */
export async function postWebhook(
  { secret, ...webhook }: WebAddress & { secret?: string | undefined },
  { id, body }: { id: string; body: unknown },
  signal: AbortSignal,
): Promise<void> {
  const text = JSON.stringify(body);
  const signature = secret ? sign({ id, body: text }, secret) : {};
  const headers = { 'content-type': 'application/json', ...signature };
  await ask(webhook, { method: 'POST', headers, body: text }, signal);
}

/**
 * Requests the address of a monitoring service by the convention of healthchecks.io: with `/start` or `/fail` appended,
 * or unchanged for success. `rid` names the run. An address with a query only means success, so it is not requested
 * for other outcomes. The query `create` is an exception, because it belongs to the convention.
 */
async function ping(
  { url, ...webhook }: WebAddress,
  nightly: NightlyEvent | undefined,
  signal: AbortSignal,
): Promise<void> {
  const outcome = outcomeOf(nightly);
  const address = new URL(url);
  if ([...address.searchParams.keys()].some((name) => name !== 'create')) {
    if (outcome === 'success') await ask({ url, ...webhook }, { method: 'GET' }, signal);
    return;
  }
  if (outcome !== 'success') address.pathname = `${address.pathname.replace(/\/$/, '')}/${outcome}`;
  if (nightly?.run) address.searchParams.set('rid', nightly.run.uuid);
  await ask({ url: address.href, ...webhook }, { method: 'GET' }, signal);
}

/** Throws an Error for any answer except 2xx. A redirect is also an error. */
async function ask(
  { url, proxy, timeoutMs }: WebAddress,
  request: { method: 'GET' | 'POST'; headers?: Record<string, string>; body?: string },
  signal: AbortSignal,
): Promise<void> {
  const { origin, pathname, search } = new URL(url);
  const connections = openConnections({ baseUrl: origin, proxy }, timeoutMs);
  try {
    const asked = { path: pathname + search, ...request, signal };
    const { statusCode } = await connections.request(asked, () => undefined);
    if (statusCode < 200 || statusCode > 299) throw new Error(`the receiver answered HTTP ${statusCode}`);
  } catch (error) {
    if (signal.aborted) throw new Error('no answer in time', { cause: error });
    const code = codeOf(error);
    throw code === 'unexpected' ? error : new Error(`${whatHappened(code)} (${code})`, { cause: error });
  } finally {
    await connections.close(); // with an answer's body that is not read
  }
}

function whatHappened(code: string): string {
  switch (code) {
    case 'UND_ERR_HEADERS_TIMEOUT':
      return 'the receiver accepted the request, but did not answer in time';
    case 'UND_ERR_SOCKET':
    case 'ECONNRESET':
    case 'EPIPE':
      return 'the receiver closed the connection before it answered';
    default:
      return 'the receiver cannot be reached';
  }
}

/** Headers of Standard Webhooks: HMAC-SHA256 of id, timestamp and body, with the bytes of a secret `whsec_…`. */
export function sign(
  { id, body }: { id: string; body: string },
  secret: string,
  now = Date.now(),
): Record<string, string> {
  const timestamp = String(Math.floor(now / 1000));
  const key = Buffer.from(secret.slice('whsec_'.length), 'base64');
  const signature = createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64');
  return { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': `v1,${signature}` };
}
