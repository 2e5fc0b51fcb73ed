// Document of the situation: concerns, unfinished runs, state of sending. `slotsync status` and the first page show it.
import { LANES } from '../destination/quota/quota-rules.js';
import { isOnItsWay } from '../situation/causes.js';
import { listVerified, type ScheduleFacts, type Situation } from '../situation/situation.js';
import type { RequestTotals } from '../state/requests.js';
import { counted, formatDuration, formatNumber, plural, present, sum } from '../text/format.js';
import { NIGHTLY } from '../time/schedule.js';
import { statusInWords } from './causes.js';
import { describeExtra, describeKeptObjects, describeStoredOtherwise } from './drift.js';
import { concerns, concernToPoint, kindOf, needsPerson, type Concern } from './concerns/concerns.js';
import { findUntaken } from './concerns/records.js';
import {
  filledSections,
  section,
  text,
  withQuery,
  type Cell,
  type Document,
  type Fact,
  type Point,
  type Section,
  type Sparse,
  type Text,
} from './document.js';
import { ago } from './concerns/concern.js';
import { describeExceptions } from './exceptions.js';
import { describeSettled, describeUnsettled } from './failures.js';
import { describeState, graphsSection, streamsSection, type SituationFacts } from './overview.js';
import { runsTable, underWayToPoint } from './runs.js';

export type { SituationFacts } from './overview.js';

const MOST_OF_A_KIND = 3;
const STATUSES = ['synced', 'retired', 'deferred', 'failed', 'dead', 'pending'] as const;

/** `all` are the concerns of the situation. By default they are computed from `facts`. */
export function situationDocument(
  facts: SituationFacts,
  { all = concerns(facts) }: { all?: readonly Concern[] } = {},
): Document {
  const { binding } = facts;
  return {
    title: 'Now',
    headline: describeState(facts, all),
    lead: present<Text>(
      binding
        ? text`Organization ${binding.organizationId} at ${binding.baseUrl}, since ${{ minute: binding.boundAt }}.`
        : 'Not bound to a service yet. The first sync binds the state to its service.',
      describeLastAnswer(facts),
    ),
    sections: [
      streamsSection(facts),
      { ...attentionSection(all, facts.now), isOneLine: true },
      underWay(facts),
      graphsSection(facts),
      { ...noticesSection(all, facts), isOneLine: true },
      latestRuns(facts),
      ...[records, loadsSection, verifiedSection, inbox, quota, processes].map((toSection) => ({
        ...toSection(facts),
        isFolded: true,
      })),
    ],
  };
}

export function attentionSection(all: readonly Concern[], now: Date): Section {
  const points = pointsOf(all, needsPerson, now);
  return section('attention', 'Needs a person', { isUrgent: points.length > 0, points });
}

/** Section of concerns that end automatically, or that an operator may leave as they are. */
export function noticesSection(all: readonly Concern[], { now }: Pick<Situation, 'now'>): Section {
  return section('notices', 'Notices', { points: pointsOf(all, (concern) => !needsPerson(concern), now) });
}

/** Returns the sections named on the command line: a concern by number, id or kind, or a section by its id. */
export function findPart(facts: SituationFacts, name: string): Section[] {
  const all = concerns(facts);
  const named = all.filter(
    ({ id, kind }, at) => name === String(at + 1) || `${id} `.startsWith(`${name} `) || kind === name,
  );
  const points = named.map((concern) => concernToPoint(concern, facts.now));
  const ofName = situationDocument(facts, { all }).sections.filter(({ id }) => id === name);
  const filled = filledSections([section('concerns', name, { points }), ...ofName]);
  if (filled.length > 0) return filled;
  return ofName.map(({ id, title }) => section(id, title, { paragraphs: [`${title}: nothing now.`] }));
}

/** Sentences with the number of records not in sync, and the number that a run or worker is about to send. */
export function describeNotInSync({ unsettled, causes }: Pick<Situation, 'unsettled' | 'causes'>): Text[] {
  const onTheirWay = sum(causes.filter(isOnItsWay).map(({ records, waiting }) => records + waiting));
  const notInSync = unsettled - onTheirWay;
  return present<Text>(
    notInSync > 0 && text`${describeUnsettled(notInSync)}: ${{ command: 'slotsync failures' }}`,
    onTheirWay > 0 && counted`${onTheirWay} record{|s} {is|are} queued or under way.`,
  );
}

/** Shows the first concerns of each kind in full. One more point has the next ones, and a command that lists all. */
function pointsOf(all: readonly Concern[], isMeant: (concern: Concern) => boolean, now: Date): Point[] {
  const some = all.map((concern, at) => ({ concern, number: at + 1 })).filter((one) => isMeant(one.concern));
  const kinds = [...new Set(some.map(({ concern }) => concern.kind))];
  return kinds.flatMap((kind) => {
    const ofKind = some.filter(({ concern }) => concern.kind === kind);
    // A line that counts one more concern would need as much room as the concern.
    const most = ofKind.length === MOST_OF_A_KIND + 1 ? ofKind.length : MOST_OF_A_KIND;
    const more = ofKind.length - most;
    const shown = ofKind
      .slice(0, most + MOST_OF_A_KIND)
      .map(({ concern, number }) => ({ ...concernToPoint(concern, now), number }));
    const points = shown.slice(0, most);
    if (more <= 0) return points;
    const details = shown.slice(most).map((point) => point.text);
    const command = kindOf({ kind }).listedBy ?? 'slotsync status --json';
    return [...points, { text: `… and ${formatNumber(more)} more`, details, commands: [command] }];
  });
}

function underWay(facts: SituationFacts): Section {
  const { runs, now } = facts;
  // If no process is alive, nobody works on the runs, so their end cannot be estimated.
  const secondsLeft = facts.processes.some(({ isAlive }) => isAlive) ? facts.secondsLeft : undefined;
  return section('under-way', 'Under way', {
    paragraphs: [
      present(facts.nightly, facts.schedules).flatMap(describeSchedule),
      runs.underWay.length === 0 && 'No run is under way.',
    ],
    points: runs.underWay.map((run) =>
      underWayToPoint({ ...run, secondsLeft: secondsLeft?.get(run.run.id) }, now),
    ),
  });
}

function describeSchedule({ name, streams, nextDue, lastDue, waitsUntil }: ScheduleFacts): Text[] {
  const what = name === NIGHTLY ? 'nightly sync' : `sync of ${streams.join(', ')}`;
  return present<Text>(
    waitsUntil &&
      text`The due ${what} waits for a newer load of the mirror, at the latest until ${{ minute: waitsUntil }}.`,
    text`Next ${what}: ${{ minute: nextDue }}; ${lastDue ? text`previous: ${{ minute: lastDue }}` : 'none was due yet'}.`,
  );
}

/** Section with the age of the mirror's load. Has rows only for streams whose configuration limits the age. */
export function loadsSection({ loads, now }: Pick<Situation, 'loads' | 'now'>): Section {
  return section('loads', 'Load of the mirror', {
    table: {
      headings: ['stream', 'loaded', 'age', 'at most', 'read'],
      rows: loads.map(({ stream, loadedAt, olderThan, problem, maxHours, readAt }) => [
        stream,
        loadedAt ? text`${{ minute: loadedAt }}` : '–',
        problem === 'unreadable' || problem === 'future' || !loadedAt
          ? 'not known'
          : `${ago(loadedAt, now)}${olderThan ? ', older' : ''}`,
        `${formatNumber(maxHours)} h`,
        text`${{ minute: readAt }}`,
      ]),
    },
  });
}

function latestRuns({ runs: { latest } }: SituationFacts): Section {
  return section('runs', 'Latest runs', {
    paragraphs: [latest.length === 0 && text`No run yet. Start one with: ${{ command: 'slotsync sync' }}`],
    table: runsTable(latest),
  });
}

/** Section of records by stream and status. A status says what was accepted, not what the service holds now. */
function records(facts: SituationFacts): Section {
  const { records: counts, unsettled, known } = facts;
  const streams = [...new Set(counts.map(({ stream }) => stream))];
  const cellOf = (stream: string, status: (typeof STATUSES)[number]): Cell => {
    const { count = 0 } = counts.find((row) => row.stream === stream && row.status === status) ?? {};
    const isListed = count > 0 && status !== 'synced' && status !== 'retired';
    return isListed ? { parts: [{ text: count, href: withQuery('/failures', { stream }) }] } : count;
  };
  return section('records', 'Records', {
    paragraphs: [
      unsettled === 0 ? describeSettled(known) : describeNotInSync(facts),
      describeExceptions(sum(facts.exceptions.map(({ count }) => count))),
    ],
    table: {
      headings: ['stream', ...STATUSES.map(statusInWords)],
      rows: streams.map((stream) => [stream, ...STATUSES.map((status) => cellOf(stream, status))]),
    },
  });
}

export function verifiedSection(facts: Situation): Section {
  const streams = listVerified(facts);
  return section('verified', 'At the service', {
    paragraphs: [
      streams.some(({ verifiedAt }) => !verifiedAt) &&
        'Some streams were never verified, so their objects at the service are unknown: slotsync verify',
      streams.some(({ drift }) => drift > 0) && 'To list drifting objects: slotsync verify',
      describeStoredOtherwise(sum(streams.map(({ storedOtherwise }) => storedOtherwise))),
      describeKeptObjects(sum(streams.map(({ kept }) => kept))),
      describeExtra(sum(streams.map(({ extra }) => extra))),
    ],
    table: {
      headings: ['stream', 'verified', 'objects', 'drift'],
      rows: streams.map(({ stream, verifiedAt, objects, drift }) => [
        stream,
        verifiedAt ? text`${{ minute: verifiedAt }}` : 'never verified',
        objects ?? '–',
        verifiedAt || drift > 0 ? drift : '–',
      ]),
    },
  });
}

function inbox(facts: SituationFacts): Section {
  const { streams, others, watermarks, reservations } = facts.inbox;
  const all = present(
    streams,
    others && { ...others, stream: `… and ${plural(others.streams, 'more stream')}` },
  );
  return section('inbox', 'Inbox of changes', {
    paragraphs: [
      findUntaken(facts).some(({ why }) => why === 'no_worker') &&
        text`No worker is running, so nothing processes these keys. Start a worker: ${{ command: 'slotsync worker' }}`,
      watermarks.map(
        ({ stream, cursor, movedAt }) =>
          text`Polled: ${stream} up to ${momentOf(cursor) ?? cursor}${movedAt && text`; the watermark last moved at ${movedAt}`}.`,
      ),
      reservations &&
        text`Bookings: changes at the service are read up to ${new Date(reservations.readUpTo * 1000)}.`,
    ],
    table: {
      headings: ['stream', 'waiting', 'in progress', 'to be tried again', 'oldest'],
      rows: all.map(({ stream, waiting, inFlight, later, oldestSeconds }) => [
        stream,
        waiting,
        inFlight,
        later,
        formatDuration(oldestSeconds),
      ]),
    },
  });
}

/** Returns the time of a cursor that is a timestamp with time zone, to the second. Undefined for any other cursor. */
function momentOf(cursor: string): Date | undefined {
  const [, day, clock, hours, minutes = ':00'] =
    /^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.\d+)?([+-]\d\d)(:\d\d)?$/.exec(cursor) ?? [];
  return hours === undefined ? undefined : new Date(`${day}T${clock}${hours}${minutes}`);
}

/** Section of requests and quota. Omits the quota if its store does not answer, which is a concern of its own. */
function quota({ quota: usage, history }: SituationFacts): Section {
  let facts: Sparse<Fact> = [];
  if (usage && !('unknown' in usage)) {
    const { allowed, rate, held, cooling, lanes, waiting, pausedMs, usedByOthers } = usage;
    const reduced = allowed < rate ? `, reduced to ${allowed} after 429 answers` : '';
    const busy = LANES.filter((lane) => lanes[lane] + waiting[lane] > 0).map((lane) => {
      const waits = waiting[lane] > 0 ? ` (${plural(waiting[lane], 'process', 'processes')} waiting)` : '';
      return `${lane} ${lanes[lane]}${waits}`;
    });
    facts = [
      ['Quota', `${held + cooling} of ${rate} in use${reduced}`],
      ['Requests under way by lane', busy.length === 0 ? 'none, and none waiting' : busy.join(', ')],
      pausedMs > 0 && ['Paused', `for ${formatDuration(pausedMs / 1000)} after a 429`],
      usedByOthers > 0 && ['Other clients', `about ${usedByOthers} of ${rate}`],
    ];
  }
  return section('requests', 'Requests and quota', {
    facts,
    paragraphs: [history && describeHour(history.hour)],
  });
}

const describeHour = ({ requests, fastest, fastestAt, throttled }: RequestTotals): Text =>
  text`${plural(requests, 'request')} of all processes in the last hour, at most ${formatNumber(fastest)} in one second${fastestAt && text`, at ${fastestAt}`}; ${formatNumber(throttled)} refused with 429.`;

function processes({ processes: all }: SituationFacts): Section {
  return section('processes', 'Processes at work', {
    paragraphs: [
      all.length === 0 && text`No process is running. Start a worker: ${{ command: 'slotsync worker' }}`,
      text`To see which alerts were sent: ${{ command: 'slotsync alerts' }}`,
    ],
    table: {
      headings: ['command', 'host', 'process', 'status', 'started', 'last seen'],
      rows: all.map(({ command, host, pid, isAlive, stoppedSince, startedAt, seenAt }) => [
        command,
        host,
        String(pid),
        text`${{ status: !isAlive ? 'not seen' : stoppedSince ? 'stopped' : 'working' }}`,
        text`${{ minute: startedAt }}`,
        isAlive ? '' : text`${seenAt}`,
      ]),
    },
  });
}

const ANSWERS: Readonly<Record<string, string>> = {
  unreachable: 'none, the service could not be reached',
  lost: 'none, the answer was lost',
};
export const describeAnswer = (answer: string | null) => ANSWERS[answer ?? ''] ?? `HTTP ${answer}`;

function describeLastAnswer({ binding, now }: SituationFacts): Text | undefined {
  const { answeredAt = null, answer = null, succeededAt = null } = binding ?? {};
  if (answeredAt === null) return undefined;
  const isSuccess = answeredAt.getTime() === succeededAt?.getTime();
  const succeeded = succeededAt ? text`; the last success ${succeededAt}` : '; no success yet';
  return text`Last answer of the service: ${describeAnswer(answer)}, ${ago(answeredAt, now)} ago (${answeredAt})${isSuccess ? '' : succeeded}.`;
}
