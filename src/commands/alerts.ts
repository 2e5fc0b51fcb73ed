import { composeTest } from '../alerts/notice.js';
import { evaluateAlerts } from '../alerts/evaluate-alerts.js';
import { readOrganization, sendDue, trySend, type AlertDeps } from '../alerts/send-alerts.js';
import type { App } from '../app/app.js';
import { UsageError } from '../errors/errors.js';
import { formatTime, plural, lines } from '../text/format.js';
import { print, printNote } from '../render/print.js';
import { listOpenAlerts, listUnsentNightly, type OpenAlert } from '../state/alerts.js';
import { takeLock } from '../state/locks.js';
import { type CommonOptions, EXIT } from './command.js';

export async function alerts(app: App, action: string | undefined, options: CommonOptions): Promise<number> {
  const deps = await app.alerting();
  switch (action) {
    case undefined:
      await printOpen(deps, options);
      return EXIT.done;
    case 'check':
      // If a worker is evaluating alerts, waits until the worker has finished, and then evaluates them here.
      while (!(await evaluateAlerts(deps)))
        await deps.state.db.transaction((tx) => takeLock(tx, 'alerts', { onWait: printNote }));
      await sendDue(deps);
      return (await printOpen(deps, options)).some(({ goneSince }) => goneSince === null)
        ? EXIT.failed
        : EXIT.done;
    case 'test':
      return testChannels(deps, options);
    default:
      throw new UsageError(`alerts takes check or test, not '${action}'`);
  }
}

async function printOpen(
  { state, channels, timeZone }: AlertDeps,
  options: CommonOptions,
): Promise<OpenAlert[]> {
  const open = await listOpenAlerts(state.db);
  const unsent = await listUnsentNightly(state.db);
  const names = channels.map(({ name }) => name);
  print(
    options,
    { channels: names, alerts: open, nightlyRuns: unsent },
    lines(
      names.length === 0
        ? 'No alert channel is configured, so nobody is notified. To set one: docs/alerts.md'
        : `Channels: ${names.join(', ')}.`,
      open.length === 0 ? 'No alert is open.' : `${plural(open.length, 'alert')} open:`,
      open.flatMap((alert) => describeOpen(alert, timeZone)),
      unsent.flatMap(({ message, messages }) => ['', message.title, ...describeMessages(messages, timeZone)]),
    ),
  );
  return open;
}

function describeOpen({ message, openedAt, goneSince, messages }: OpenAlert, timeZone: string): string[] {
  const { title, details, commands } = message;
  return lines(
    '',
    title,
    details.map((line) => `  ${line}`),
    `  Open since ${formatTime(openedAt, timeZone)}.`,
    goneSince !== null &&
      `  Its cause ended at ${formatTime(goneSince, timeZone)}; the alert closes unless the cause returns within minutes.`,
    describeMessages(messages, timeZone),
    commands.map((command) => `  → ${command}`),
  );
}

function describeMessages(messages: OpenAlert['messages'], timeZone: string): string[] {
  return messages.map(({ channel, sentAt, attempts, missing, error }) => {
    if (sentAt !== null) return `  ${channel}: sent ${formatTime(new Date(sentAt), timeZone)}.`;
    const to = missing === null ? '' : ` to ${missing.join(', ')}`;
    return `  ${channel}: not sent${to} after ${plural(attempts, 'attempt')}${error === null ? '' : `: ${error}`}.`;
  });
}

async function testChannels({ state, channels }: AlertDeps, options: CommonOptions): Promise<number> {
  if (channels.length === 0)
    throw new UsageError('no alert channel is configured', {
      remedy:
        'Set ALERT_WEBHOOK_URL, ALERT_SLACK_URL, ALERT_TEAMS_URL, ALERT_SMTP_URL or ALERT_PING_URL: docs/alerts.md',
    });
  const notice = composeTest(await readOrganization(state));
  const results = await Promise.all(
    channels.map(async (channel) => ({
      channel: channel.name,
      error: (await trySend(channel, notice)).problem,
    })),
  );
  print(
    options,
    { channels: results },
    results.map(({ channel, error }) => `${channel}: ${error === null ? 'sent' : `not sent: ${error}`}`),
  );
  return results.every(({ error }) => error === null) ? EXIT.done : EXIT.failed;
}
