// Channels that alerts are sent to. A channel is enabled by the setting that has its address.
import { UsageError } from '../errors/errors.js';
import { currentText, type SettingText } from '../config/setting-text.js';
import type { AlertSettings, ProxySettings } from '../config/settings.js';
import { documentToMail, toDocument, toJsonBody, toSlackBody, toTeamsBody } from './formats.js';
import { reportDocument } from '../documents/report.js';
import type { ReportFacts } from '../situation/report.js';
import type { AlertRules } from '../documents/concerns/concern.js';
import type { Document } from '../documents/document.js';
import { subjectOf, type NightlyEvent, type Notice } from './notice.js';
import { ping, postWebhook, type PingOutcome, type WebLimits } from './post-webhook.js';
import type { ParsedConfig } from '../streams/config-schema.js';

export type ChannelName = 'webhook' | 'slack' | 'teams' | 'mail' | 'ping' | 'report';
/** Kind of messages that a channel sends. */
export type Subject = 'alerts' | 'nightly runs' | 'ends of nightly runs';

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
    send: (to: { url: string } & WebLimits, notice: Notice, signal: AbortSignal) => Promise<void>,
  ): Channel[] => {
    if (url === undefined) return [];
    const limits = { proxy, timeoutMs: STEP_WITHIN_MS };
    return [
      { ...channel, send: (notice, signal) => send({ url: currentText(url), ...limits }, notice, signal) },
    ];
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
    throw new UsageError('the configuration mails the report, and ALERT_SMTP_URL is not set', {
      faults: ['report.to: gets it by the mail server of alerts, from alerts.mail.from'],
      remedy: 'Set ALERT_SMTP_URL, or remove report from the configuration.',
    });
  if (smtpUrl !== undefined && mail === undefined)
    throw new UsageError('ALERT_SMTP_URL is set, and the configuration does not say who gets the mail', {
      faults: ["alerts.mail: is missing: { from: 'slotsync@campus.example', to: ['ops@campus.example'] }"],
      remedy: 'Add it to the configuration, or unset ALERT_SMTP_URL.',
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
      ping(to, { outcome: outcomeOf(nightly), uuid: nightly?.run?.uuid }, signal),
    ),
    ...mailTo({ name: 'mail', subject: 'alerts' }, mail?.to ?? [], toDocument),
    ...(report ? mailTo({ name: 'report', subject: 'ends of nightly runs' }, report.to, reportOr) : []),
  ];
}

/** Outcome that a ping reports. A notice without a nightly run only tests the address. */
function outcomeOf(nightly: NightlyEvent | undefined): PingOutcome {
  if (nightly === undefined) return 'success';
  if (!nightly.hasEnded) return 'start';
  return nightly.isBad ? 'fail' : 'success';
}
