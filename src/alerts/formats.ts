// Message bodies of the channels: slotsync's own JSON, the formats of Slack and Teams, and documents for mail.
import { section, type Document } from '../documents/document.js';
import { documentToHtml } from '../render/html.js';
import { documentToText } from '../render/text.js';
import { visible, visibleInLine } from '../text/visible-text.js';
import { senderOf, subjectOf, type Notice } from './notice.js';

/** Body in slotsync's own format, for programs. Contains all facts of the alerts. */
export function toJsonBody({ organization, alerts }: Notice) {
  return { version: 1, organization, alerts };
}

/** Maximum number of characters in a section, and of sections in a message, that Slack accepts. */
const SLACK_TEXT = 2900;
const SLACK_SECTIONS = 40;

/** Body for an incoming webhook of Slack. A notification shows `text`, and the channel shows `blocks`. */
export function toSlackBody(notice: Notice) {
  const sections = notice.alerts.slice(0, SLACK_SECTIONS).map(({ title, details, commands }) => {
    const body = [...details.map(slackText), ...commands.map((command) => `\`${slackText(command)}\``)];
    return slackSection(`*${slackText(title)}*\n${body.join('\n')}`);
  });
  const left = notice.alerts.length - sections.length;
  return {
    text: slackText(`slotsync: ${subjectOf(notice)}`),
    blocks: [
      ...sections,
      ...(left > 0 ? [slackSection(`and ${left} more: \`slotsync alerts\``)] : []),
      { type: 'context', elements: [{ type: 'mrkdwn', text: slackText(senderOf(notice)) }] },
    ],
  };
}

function slackSection(text: string) {
  return { type: 'section', text: { type: 'mrkdwn', text: text.slice(0, SLACK_TEXT) } };
}

/** Escapes the only three characters that Slack requires to be escaped. */
function slackText(text: string): string {
  return visibleInLine(text).replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}

const TEAMS_ALERTS = 20;

/** Message with an Adaptive Card, as a workflow of Teams expects. Teams shows its text runs verbatim. */
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

/** Returns the text and the HTML of a mail. No value in them can begin a new line or an HTML tag. */
export function documentToMail(document: Document, timeZone: string): { text: string; html: string } {
  return {
    text: visible(documentToText(document, { timeZone })),
    html: visible(documentToHtml(document, timeZone)),
  };
}

export const toDocument = (notice: Notice): Document => ({
  title: subjectOf(notice),
  lead: [`From ${senderOf(notice)}`],
  sections: [
    section('alerts', 'Alerts', {
      points: notice.alerts.map(({ title, details, commands }) => ({ text: title, details, commands })),
    }),
  ],
});
