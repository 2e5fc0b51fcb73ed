// Input of a channel: one notice with all due alerts, so that many causes at the same time make one message.
import { randomUUID } from 'node:crypto';
import { formatDuration, plural } from '../text/format.js';
import { visibleInLine } from '../text/visible-text.js';
import type { DueMessage } from '../state/alerts.js';
import type { AlertCondition } from '../state/schema.js';

/** Thrown if a notice did not reach some addresses. Only these get it again, because the others would get it twice. */
export class SentInPart extends Error {
  readonly missing: readonly string[];

  constructor(message: string, missing: readonly string[]) {
    super(message);
    this.missing = missing;
  }
}

export interface NoticeAlert {
  id: number;
  event: 'opened' | 'recovered' | 'test';
  condition: AlertCondition | 'test';
  /** Identifies the cause of the alert. The same cause has the same text when it returns later. */
  cause: string;
  title: string;
  details: readonly string[];
  commands: readonly string[];
  openedAt: Date;
  recoveredAt: Date | null;
}

export interface NightlyEvent {
  /** Run that started or ended. Null in a heartbeat, which is about the latest run. */
  run: { id: number; uuid: string } | null;
  hasEnded: boolean;
  isBad: boolean;
}

export interface Notice {
  /** Identifies the notice. The id is equal at every attempt, so that receivers can detect duplicates. */
  id: string;
  /** Organization and service that the state is bound to. Null if no run has bound it yet. */
  organization: { id: string; service: string } | null;
  alerts: readonly NoticeAlert[];
  /** If set, the notice is only about this nightly run. */
  nightly?: NightlyEvent | undefined;
}

export function composeNotice(
  organization: Notice['organization'],
  due: readonly [DueMessage, ...DueMessage[]],
): Notice {
  const [{ id, decidedAt, event, alert }] = due;
  const { run } = alert.message;
  return {
    id: `msg_${decidedAt}_${id}`,
    organization,
    alerts: due.map(composeAlert),
    nightly: run && { run, hasEnded: event === 'recovered', isBad: run.isBad ?? false },
  };
}

/** Notice for a ping that reports how the latest nightly run ended. */
export function composeHeartbeat(isBad: boolean): Notice {
  const nightly = { run: null, hasEnded: true, isBad };
  return { id: `msg_${randomUUID()}`, organization: null, alerts: [], nightly };
}

export function composeTest(organization: Notice['organization'], now = new Date()): Notice {
  const alert = {
    id: 0,
    event: 'test',
    condition: 'test',
    cause: 'test',
    title: 'Test of this channel',
    details: ['slotsync alerts test sent this message. No action is needed.'],
    commands: [],
    openedAt: now,
    recoveredAt: null,
  } as const;
  return { id: `msg_${randomUUID()}`, organization, alerts: [alert] };
}

function composeAlert({ event, alert }: DueMessage): NoticeAlert {
  const { id, condition, cause, openedAt, recoveredAt, message } = alert;
  const named = { id, event, condition, cause, openedAt, recoveredAt };
  if (event === 'opened' || condition === 'nightly_run') {
    const { title, details, commands } = message;
    return { ...named, title, details, commands };
  }
  const seconds = ((recoveredAt ?? new Date()).getTime() - openedAt.getTime()) / 1000;
  return {
    ...named,
    title: `Over: ${message.title}`,
    details: [`The cause lasted ${formatDuration(seconds)}.`, ...(message.afterwards ?? [])],
    commands: [],
  };
}

/** Subject line: the title of a single alert, or the number of alerts. */
export function subjectOf({ alerts }: Notice): string {
  const [first, ...others] = alerts;
  if (first && others.length === 0) return visibleInLine(first.title);
  const over = alerts.filter(({ event }) => event === 'recovered').length;
  const open = alerts.length - over;
  return [open > 0 && plural(open, 'alert'), over > 0 && `${over} over`].filter(Boolean).join(', ');
}

export function senderOf({ organization }: Notice): string {
  return organization === null
    ? 'slotsync'
    : `slotsync, organization ${visibleInLine(organization.id)} at ${visibleInLine(organization.service)}`;
}
