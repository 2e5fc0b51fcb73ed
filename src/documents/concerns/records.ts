// Concerns about differences between mirror, state and service: records not in sync, drift, bookings, inbox changes.
import { isOnItsWay } from '../../situation/causes.js';
import { causeToPoint, commandOfCause, headlineOf, needsOperator } from '../causes.js';
import type { Situation } from '../../situation/situation.js';
import { isDrift, isRepaired } from '../../state/drift.js';
import { counted, formatDuration, formatNumber, plural, present, sum } from '../../text/format.js';
import { nextOfVerdict, VERDICT_MEANINGS } from '../bookings.js';
import { text } from '../document.js';
import { type Ground, groupBy, kind, listStreams, nameSome } from './concern.js';

export const RECORDS = {
  /** Causes why records are not in sync. Held records have another concern. Records about to be sent are left out. */
  records: kind({
    severity: 'action',
    find: ({ causes }) =>
      causes
        .filter((cause) => cause.status !== 'held' && !isOnItsWay(cause))
        .map((cause) => ({
          id: ['records', cause.stream, cause.status, cause.code ?? ''].join(' ').trim(),
          severity: needsOperator(cause) ? 'action' : 'notice',
          since: cause.since,
          subject: cause.stream,
          facts: cause,
          commands: [commandOfCause(cause)],
        })),
    alertCommands: ({ stream }) => [`slotsync failures ${stream}`],
    short: (all) => plural(sum(all.map(({ records }) => records)), 'record to correct', 'records to correct'),
    listedBy: 'slotsync failures',
    point: causeToPoint,
    say: (cause) => ({ status: cause.status, text: headlineOf({ ...cause, keys: [] }) }),
  }),

  drift: kind({
    severity: 'action',
    find: ({ drift }) => {
      const drifting = drift.filter(({ kind: of }) => isDrift(of));
      return groupBy(drifting, ({ stream }) => `drift ${stream}`).map(([id, counted, { stream }]) => {
        const repairable = sum(counted.map(({ kind: of, count }) => (isRepaired(of) ? count : 0)));
        return {
          id,
          subject: stream,
          facts: {
            stream,
            kinds: counted.map(({ kind: of, count }) => ({ kind: of, count })),
            objects: sum(counted.map(({ count }) => count)),
            repairable,
          },
          commands: present<string>(
            `slotsync verify ${stream}`,
            repairable > 0 && `slotsync verify ${stream} --repair`,
          ),
        };
      });
    },
    alert: {
      condition: 'drift',
      after: ({ driftObjects }, { facts }) => driftObjects !== false && facts.objects >= driftObjects && 0,
    },
    short: (all) => `drift of ${plural(sum(all.map(({ objects }) => objects)), 'object')}`,
    say: ({ stream, kinds, objects }) => ({
      status: 'changed',
      text: counted`${objects} object{|s} of ${stream} {drifts|drift} at the service`,
      details: [
        `Not as last accepted: ${kinds.map(({ kind: of, count }) => `${formatNumber(count)} ${of}`).join(', ')}.`,
      ],
    }),
  }),

  bookings: kind({
    severity: 'action',
    find: ({ discrepancies }) =>
      discrepancies.length > 0 && {
        facts: {
          bookings: sum(discrepancies.map(({ count }) => count)),
          verdicts: discrepancies.map(({ verdict, count: bookings, problems }) => ({
            verdict,
            bookings,
            problems,
          })),
        },
        commands: ['slotsync reconcile'],
      },
    short: (all) => plural(sum(all.map(({ bookings }) => bookings)), 'booking'),
    say: ({ bookings, verdicts }) => ({
      status: 'changed',
      text: text`${{ text: plural(bookings, 'booking'), href: '/bookings' }} ${bookings === 1 ? 'does' : 'do'} not agree`,
      details: verdicts.map(
        ({ verdict, bookings: count, problems }) =>
          `${verdict}: ${plural(count, 'booking')} ${VERDICT_MEANINGS[verdict]}${problems > 0 ? `; ${formatNumber(problems)} with a fault in the mirror, which the list explains` : ''}${problems < count ? `; ${nextOfVerdict(verdict)}` : ''}`,
      ),
    }),
  }),

  /** Old changes of one stream in the inbox. New changes cause no concern, even if no worker is alive. */
  inbox: kind({
    severity: 'action',
    find: (ground, { inboxMinutes }) => {
      const unknown = findUnknown(ground).flatMap(({ streams }) => streams);
      return ground.inbox.streams
        .filter(
          ({ stream, oldestSeconds }) =>
            !unknown.includes(stream) &&
            !isFrozen(ground, stream) &&
            inboxMinutes !== false &&
            oldestSeconds >= inboxMinutes * 60,
        )
        .map((waiting) => ({
          id: `inbox ${waiting.stream}`,
          since: sinceOf(waiting, ground),
          subject: waiting.stream,
          facts: waiting,
        }));
    },
    alert: { condition: 'inbox', after: ({ inboxMinutes }) => inboxMinutes },
    short: (all) => `old changes of ${plural(all.length, 'stream')}`,
    say: ({ stream, waiting, inFlight, oldestSeconds }) => ({
      status: 'pending',
      text: `A change of ${stream} has waited for ${formatDuration(oldestSeconds)}`,
      details: [`${plural(waiting, 'key')} waiting, ${formatNumber(inFlight)} in progress.`],
    }),
  }),

  /**
   * Inbox changes of streams that no worker knows. All are one concern, because other programs may add any stream name.
   */
  inbox_unknown: kind({
    severity: 'action',
    find: (ground) =>
      findUnknown(ground).map((untaken) => ({
        id: `inbox (${untaken.why === 'not_configured' ? 'not configured' : 'no worker has it'})`,
        since: sinceOf(untaken, ground),
        facts: untaken,
      })),
    alert: { condition: 'inbox', after: ({ inboxMinutes }) => inboxMinutes },
    short: () => 'changes of unknown streams',
    say: ({ why, streams, count }) => ({
      status: 'pending',
      text: `Changes wait for streams that ${why === 'not_configured' ? 'are not in the configuration' : 'no running worker has'}`,
      details: [`${plural(count, 'stream')}; no worker processes their changes.`],
      named: listStreams(streams, count),
      next: why === 'not_configured' ? undefined : 'Restart the worker, because it has an old configuration.',
    }),
  }),

  /** Streams whose triggers were installed, but are now deleted or disabled. */
  triggers_gone: kind({
    severity: 'action',
    find: ({ lostTriggers: streams }) =>
      streams.length > 0 && {
        facts: { streams },
        subject: streams.join(', '),
        commands: [['slotsync triggers install', ...streams].join(' ')],
      },
    say: ({ streams }) => ({
      status: 'failed',
      text: `The triggers of ${nameSome(streams)} are missing or disabled, so only the next sync finds changes`,
      details: ['A table that was dropped and created again has lost its triggers.'],
    }),
  }),

  in_doubt: kind({
    severity: 'notice',
    find: ({ inDoubt: facts }) => facts && facts.count > 0 && { facts },
    say: ({ count, latest }) => ({
      status: 'pending',
      text: text`${plural(count, 'object')} will be checked again because an answer was lost or the service refused the object alone${latest && text`, the last after ${latest}`}`,
    }),
  }),

  former_objects: kind({
    severity: 'notice',
    find: ({ formerObjects: objects = 0 }) =>
      objects > 0 && { facts: { objects }, commands: ['slotsync retry --all --retire-former'] },
    say: ({ objects }) => ({
      status: 'changed',
      text: counted`${objects} former object{|s} of records whose external id changed {is|are} not deactivated`,
    }),
  }),
};

/** Groups inbox keys that no worker takes by the reason. Each group has names of streams, their number, and an age. */
export function findUntaken({
  inbox: { streams, others },
  configured,
  processes,
}: Pick<Situation, 'inbox' | 'configured' | 'processes'>) {
  const workers = processes.filter(({ isAlive, command }) => isAlive && command === 'worker');
  const whyOf = (stream: string) => {
    if (configured !== null && !configured.includes(stream)) return 'not_configured';
    if (workers.length === 0) return 'no_worker';
    const isKnown = workers.some(({ fingerprints }) => !fingerprints || Object.hasOwn(fingerprints, stream));
    return isKnown ? undefined : 'unknown_to_workers';
  };
  return (['not_configured', 'no_worker', 'unknown_to_workers'] as const).flatMap((why) => {
    const named = streams.filter(({ stream }) => whyOf(stream) === why);
    // The inbox lists only a few unconfigured streams by name. `others` has the number of the rest.
    const rest = why === 'not_configured' && configured !== null ? others : null;
    const count = named.length + (rest?.streams ?? 0);
    const ages = [...named, ...(rest ? [rest] : [])].map(({ oldestSeconds }) => oldestSeconds);
    if (count === 0) return [];
    const oldestSeconds = ages.reduce((most, age) => Math.max(most, age), 0);
    return [{ why, streams: named.map(({ stream }) => stream), count, oldestSeconds }];
  });
}

/** Omits keys that wait only because no worker is running. A started worker takes them. */
const findUnknown = (ground: Ground) =>
  findUntaken(ground).flatMap(({ why, ...of }) => (why === 'no_worker' ? [] : [{ why, ...of }]));

const sinceOf = ({ oldestSeconds }: { oldestSeconds: number }, { now }: Ground) =>
  new Date(now.getTime() - oldestSeconds * 1000);

export const isFrozen = ({ freezes }: Pick<Ground, 'freezes'>, stream: string) =>
  freezes.some(
    ({ isInForce, streams, exceptStreams }) =>
      isInForce && (streams ? streams.includes(stream) : !exceptStreams.includes(stream)),
  );
