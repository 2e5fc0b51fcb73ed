// The bodies that channels take: slotsync's own JSON, those of Slack and of Teams, and a document for a mail.
import type { Document } from '../documents/document.js';
import { documentToHtml } from '../render/html.js';
import { documentToText } from '../render/text.js';
import { visible, visibleInLine } from '../text/visible-text.js';
import { senderOf, subjectOf, type Notice } from './notice.js';

/** slotsync's own: everything, for programs. */
export function toJsonBody({ organization, alerts }: Notice) {
  return { version: 1, organization, alerts };
}

/** Most characters of a text in a section, and sections of a message, that Slack takes. */
const SLACK_TEXT = 2900;
const SLACK_SECTIONS = 40;

/** A message of an incoming webhook: `text` is what a notification shows, `blocks` what the channel shows. */
export function toSlackBody(notice: Notice) {
  const sections = notice.alerts.slice(0, SLACK_SECTIONS).map(({ title, details, commands }) => {
    const body = [...details.map(slackText), ...commands.map((command) => `\`${slackText(command)}\``)];
    return section(`*${slackText(title)}*\n${body.join('\n')}`);
  });
  const left = notice.alerts.length - sections.length;
  return {
    text: slackText(`slotsync: ${subjectOf(notice)}`),
    blocks: [
      ...sections,
      ...(left > 0 ? [section(`and ${left} more: \`slotsync alerts\``)] : []),
      { type: 'context', elements: [{ type: 'mrkdwn', text: slackText(senderOf(notice)) }] },
    ],
  };
}

function section(text: string) {
  return { type: 'section', text: { type: 'mrkdwn', text: text.slice(0, SLACK_TEXT) } };
}

/** Slack's own escapes; there are no others. */
function slackText(text: string): string {
  return visibleInLine(text).replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}

const TEAMS_ALERTS = 20;

/** A message with an Adaptive Card, as a Teams workflow takes it. Its runs of text are shown as they are. */
export function toTeamsBody(notice: Notice) {
  const shown = notice.alerts.slice(0, TEAMS_ALERTS);
  const left = notice.alerts.length - shown.length;
  const body = [
    ...shown.flatMap(({ event, title, details, commands }) => [
      block(title, {
        weight: 'Bolder',
        color: event === 'opened' ? 'Attention' : event === 'recovered' ? 'Good' : 'Default',
      }),
      ...details.map((line) => block(line)),
      ...commands.map((command) => block(command, { fontType: 'Monospace' })),
    ]),
    ...(left > 0 ? [block(`and ${left} more: slotsync alerts`)] : []),
    block(senderOf(notice), { isSubtle: true, size: 'Small' }),
  ];
  const card = {
    $schema: 'http://adaptivecards.io/schemas/adaptive-card.json',
    type: 'AdaptiveCard',
    version: '1.4',
    body,
  };
  return {
    type: 'message',
    attachments: [
      { contentType: 'application/vnd.microsoft.card.adaptive', contentUrl: null, content: card },
    ],
  };
}

function block(text: string, style: Record<string, unknown> = {}) {
  return { type: 'RichTextBlock', inlines: [{ type: 'TextRun', text: visibleInLine(text), ...style }] };
}

/** Returns the text and the HTML of a mail. No value can begin a line of its own or a tag in either. */
export function documentToMail(document: Document, timeZone: string): { text: string; html: string } {
  return {
    text: visible(documentToText(document, { timeZone })),
    html: visible(documentToHtml(document, timeZone)),
  };
}

/** A notice as a document, for a mail. */
export const toDocument = (notice: Notice): Document => ({
  title: subjectOf(notice),
  lead: [`From ${senderOf(notice)}`],
  sections: [
    {
      id: 'alerts',
      title: 'Alerts',
      points: notice.alerts.map(({ title, details, commands }) => ({ text: title, details, commands })),
    },
  ],
});
