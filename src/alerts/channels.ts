// The channels of alerts: each is on when the setting with its address is set.
import { UsageError } from '../errors/errors.js';
import { currentText, type SettingText } from '../config/setting-text.js';
import type { AlertSettings, ProxySettings } from '../config/settings.js';
import { toHtml, toJsonBody, toSlackBody, toTeamsBody, toText } from './formats.js';
import type { AlertRules } from './choose-alerts.js';
import { subjectOf, type Notice } from './notice.js';
import { postWebhook } from './post-webhook.js';

export type ChannelName = 'webhook' | 'slack' | 'teams' | 'mail';

export interface Channel {
  name: ChannelName;
  /**
   * Throws an Error that says why the notice did not arrive, and names no secret; SentInPart when it did not arrive at all
   * addresses. `missing`: it is sent to these alone, as far as they are still configured; null: to everybody.
   */
  send: (notice: Notice, signal: AbortSignal, missing?: readonly string[] | null) => Promise<void>;
}

/** Time limit of each step of a send; all of it has SEND_WITHIN_MS. */
const STEP_WITHIN_MS = 10_000;
/** Less than the first gap between two attempts: nobody sends a message while another still does. */
export const SEND_WITHIN_MS = 20_000;

/** Throws UsageError when a mail server is set and the configuration does not say who gets the mail. */
export function createChannels(
  settings: AlertSettings & { proxy: ProxySettings | undefined },
  { mail }: Pick<AlertRules, 'mail'>,
): Channel[] {
  const { webhookUrl, webhookSecret, slackUrl, teamsUrl, smtpUrl, proxy } = settings;
  const webhook = (
    name: ChannelName,
    url: SettingText | undefined,
    toBody: (notice: Notice) => unknown,
    secret?: SettingText,
  ): Channel[] =>
    url === undefined
      ? []
      : [
          {
            name,
            send(notice, signal) {
              const to = { url: currentText(url), secret: secret && currentText(secret) };
              return postWebhook(
                { ...to, proxy, timeoutMs: STEP_WITHIN_MS },
                { id: notice.id, body: toBody(notice) },
                signal,
              );
            },
          },
        ];
  if (smtpUrl !== undefined && mail === undefined)
    throw new UsageError('ALERT_SMTP_URL is set, and the configuration does not say who gets the mail', {
      faults: ["alerts.mail: is missing: { from: 'slotsync@campus.example', to: ['ops@campus.example'] }"],
      remedy: 'Add it to the configuration, or unset ALERT_SMTP_URL.',
    });
  return [
    ...webhook('webhook', webhookUrl, toJsonBody, webhookSecret),
    ...webhook('slack', slackUrl, toSlackBody),
    ...webhook('teams', teamsUrl, toTeamsBody),
    ...(smtpUrl !== undefined && mail !== undefined ? [mailChannel(smtpUrl, mail)] : []),
  ];
}

function mailChannel(url: SettingText, { from, to }: NonNullable<AlertRules['mail']>): Channel {
  return {
    name: 'mail',
    async send(notice, signal, missing = null) {
      const { addressesAmong, sendMail } = await import('./send-mail.js');
      const recipients = missing === null ? to : addressesAmong(to, missing);
      if (recipients.length === 0) return;
      const subject = `slotsync: ${subjectOf(notice)}`;
      const mail = { from, to: recipients, subject, text: toText(notice), html: toHtml(notice) };
      await sendMail({ url: currentText(url), timeoutMs: STEP_WITHIN_MS }, mail, signal);
    },
  };
}
