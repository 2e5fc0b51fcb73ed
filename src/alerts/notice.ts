// The input of a channel: one notice with everything that is due, so that many causes at once are one message.
import { randomUUID } from 'node:crypto';
import { formatDuration, plural } from '../text/format.js';
import { visibleInLine } from '../text/visible-text.js';
import type { DueMessage } from '../state/alerts.js';
import type { AlertCondition } from '../state/schema.js';

/** It arrived, but not at these addresses: the others would get it twice if it were sent to all again. */
export class SentInPart extends Error {
  readonly missing: readonly string[];

  constructor(message: string, missing: readonly string[]) {
    super(message);
    this.missing = missing;
  }
}

/** An alert of a notice, in words. */
export interface NoticeAlert {
  id: number;
  event: 'opened' | 'recovered' | 'test';
  condition: AlertCondition | 'test';
  /** The same for as long as the cause lasts, and when it comes again. */
  cause: string;
  title: string;
  details: readonly string[];
  commands: readonly string[];
  openedAt: Date;
  recoveredAt: Date | null;
}

/** A nightly run started, or it ended. */
export interface NightlyEvent {
  /** Null: no run of its own, as of a heartbeat. */
  run: { id: number; uuid: string } | null;
  hasEnded: boolean;
  isBad: boolean;
}

export interface Notice {
  /** The same each time it is sent: what is decided at the same time is one notice, also when it is sent again. */
  id: string;
  /** The organization and the service; null: no run has bound the state to one yet. */
  organization: { id: string; service: string } | null;
  alerts: readonly NoticeAlert[];
  /** Then it is about this alone. */
  nightly?: NightlyEvent | undefined;
}

export function composeNotice(organization: Notice['organization'], due: readonly DueMessage[]): Notice {
  const [first] = due;
  const id = `msg_${first?.decidedAt}_${first?.id}`;
  const run = first?.alert.message.run;
  const hasEnded = first?.event === 'recovered';
  return {
    id,
    organization,
    alerts: due.map(composeAlert),
    nightly: run && { run, hasEnded, isBad: run.isBad ?? false },
  };
}

/** A ping that says how the latest nightly run ended. */
export function composeHeartbeat(isBad: boolean): Notice {
  const nightly = { run: null, hasEnded: true, isBad };
  return { id: `msg_${randomUUID()}`, organization: null, alerts: [], nightly };
}

/** The message of `alerts test`. */
export function composeTest(organization: Notice['organization'], now = new Date()): Notice {
  const alert = {
    id: 0,
    event: 'test',
    condition: 'test',
    cause: 'test',
    title: 'Test of this channel',
    details: ['slotsync alerts test sent it. Nothing has happened.'],
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
    details: [`It lasted ${formatDuration(seconds)}.`, ...(message.afterwards ?? [])],
    commands: [],
  };
}

/** The alert, or how many. A subject line. */
export function subjectOf({ alerts }: Notice): string {
  const [first, ...others] = alerts;
  if (first && others.length === 0) return visibleInLine(first.title);
  const over = alerts.filter(({ event }) => event === 'recovered').length;
  const open = alerts.length - over;
  return [open > 0 && plural(open, 'alert'), over > 0 && `${over} over`].filter(Boolean).join(', ');
}

/** From whom it is. */
export function senderOf({ organization }: Notice): string {
  return organization === null
    ? 'slotsync'
    : `slotsync, organization ${visibleInLine(organization.id)} at ${visibleInLine(organization.service)}`;
}
