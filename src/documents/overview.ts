// Overview of the situation: the state in one line, a card for each stream, and graphs of requests and sent objects.
import { MOST_NIGHTS, type History } from '../situation/history.js';
import type { QuotaFacts, Situation } from '../situation/situation.js';
import { formatNear, formatNumber, mostOf, plural, present, sum } from '../text/format.js';
import { describeWhoseTurn, type Concern } from './concerns/concerns.js';
import { isFrozen } from './concerns/records.js';
import {
  addressOfRun,
  section,
  text,
  withQuery,
  type Card,
  type Document,
  type Graph,
  type Section,
  type Text,
} from './document.js';

export interface SituationFacts extends Situation {
  quota: QuotaFacts | null;
  /** Estimated seconds until each unfinished run is done, by number of the run. */
  secondsLeft?: ReadonlyMap<number, number>;
  /** Results of the last nights and requests, for graphs. Undefined if the caller did not read them. */
  history?: History | undefined;
  /** The organization's quota, in requests a second. */
  requestsPerSecond?: number | undefined;
}

const NIGHTS = 14;

const nameOfDay = (day: string) => formatNear(new Date(day), new Date(0), 'UTC');

/** Describes the state in one line. All surfaces show this line. */
export function describeState(
  facts: SituationFacts,
  all: readonly Concern[],
): NonNullable<Document['headline']> {
  const { now, succeededAt, known, unsettled, nightly, freezes, binding } = facts;
  const turn = describeWhoseTurn(all);
  if (turn !== undefined) {
    const isCritical = all.some(({ severity }) => severity === 'critical');
    return { status: isCritical ? 'failed' : 'held', text: turn, href: '#attention' };
  }
  const said = describeUnderWay(facts);
  if (said !== undefined) return { status: 'running', text: said, href: '#under-way' };
  const frozen = freezes.find(
    (one) => one.isInForce && one.streams === null && one.exceptStreams.length === 0,
  );
  if (frozen)
    return {
      status: 'paused',
      text: text`Frozen until ${{ minute: frozen.endsAt }}: nothing is written`,
      href: '#notices',
    };
  if (!known.hasRecords) {
    const next = nightly
      ? text`: the first nightly sync is due ${{ minute: nightly.nextDue }}`
      : text`. To begin: ${{ command: 'slotsync sync' }}`;
    return { status: 'neutral', text: text`Nothing is synced yet${next}` };
  }
  const cards = cardsOf(facts);
  const [inSync, total] = [sum(cards.map((card) => card.inSync)), sum(cards.map((card) => card.total))];
  const last = succeededAt ? text`last sync ${{ near: succeededAt, now }}` : 'no sync of all streams yet';
  const open = unsettled + known.held + known.drifting + known.due.length + known.underWay.length;
  const isAnswered = !binding?.answeredAt || binding.answeredAt.getTime() === binding.succeededAt?.getTime();
  if (open === 0 && all.length === 0 && isAnswered)
    return { status: 'succeeded', text: text`All well: ${plural(inSync, 'record')} in sync, ${last}` };
  const of = inSync < total && ` of ${formatNumber(total)}`;
  return {
    status: 'neutral',
    text: text`No action needed: ${formatNumber(inSync)}${of} ${total === 1 ? 'record' : 'records'} in sync, ${last}`,
    href: all.length > 0 ? '#notices' : undefined,
  };
}

/** Describes the first unfinished run in one line. Undefined if no run is unfinished. */
export function describeUnderWay({ runs, now, secondsLeft }: SituationFacts): Text | undefined {
  const [underWay, ...others] = runs.underWay;
  if (!underWay) return undefined;
  const { run, progress } = underWay;
  const left = secondsLeft?.get(run.id);
  const end = left !== undefined && { near: new Date(now.getTime() + left * 1000), now };
  const done = progress.total > 0 && `, ${Math.floor((progress.done / progress.total) * 100)} %`;
  const more = others.length > 0 && ` and ${plural(others.length, 'other run')}`;
  return text`Run ${String(run.id)} (${run.kind})${more} under way${done}${end && text`, done about ${end}`}`;
}

export const streamsSection = (facts: SituationFacts): Section =>
  section('streams', 'Streams', { cards: cardsOf(facts) });

function cardsOf(facts: SituationFacts): Card[] {
  const { configured, recordedStreams, streamStates, now, history } = facts;
  const names = configured ?? [...new Set([...recordedStreams, ...streamStates.map(({ stream }) => stream)])];
  const days = history?.days.slice(MOST_NIGHTS - NIGHTS) ?? [];
  return names.map((stream) => {
    const { syncedAt = null } = streamStates.find((state) => state.stream === stream) ?? {};
    const nights = history?.nights.filter((night) => night.stream === stream) ?? [];
    return {
      stream,
      href: withQuery('/failures', { stream }),
      ...countInSync(facts, stream),
      synced: syncedAt && { near: syncedAt, now },
      badges: badgesOf(facts, stream),
      nights: days.map((day) => {
        const { status = 'none', runId } = nights.find((night) => night.day === day) ?? {};
        const label = `${nameOfDay(day)}: ${status === 'none' ? 'no sync' : status}`;
        return { status, label, href: runId === undefined ? undefined : addressOfRun(runId) };
      }),
    };
  });
}

/**
 * Counts the records of a stream, and how many are in sync. Held records are not in sync. After a restore of the state
 * no record is, because it is not known what the service holds. Deactivated records are not counted.
 */
function countInSync({ records, gates, known }: Situation, stream: string): Pick<Card, 'inSync' | 'total'> {
  const ofStream = records.filter((row) => row.stream === stream && row.status !== 'retired');
  const synced = sum(ofStream.map(({ status, count }) => (status === 'synced' ? count : 0)));
  const held = gates.filter((gate) => gate.stream === stream && gate.operation !== 'repair');
  const created = sum(
    held.map(({ operation, count, facts }) =>
      operation === 'create' || operation === 'overwrite' ? count : (facts.byOperation?.create ?? 0),
    ),
  );
  const kept = sum(held.map(({ count }) => count)) - created;
  return {
    inSync: known.restored ? 0 : Math.max(0, synced - kept),
    total: sum(ofStream.map(({ count }) => count)) + created,
  };
}

function badgesOf(facts: Situation, stream: string): Card['badges'] {
  const { streamStates, gates, known, exceptions } = facts;
  const { problem = null } = streamStates.find((state) => state.stream === stream) ?? {};
  const held = sum(
    gates.map((gate) => (gate.stream === stream && gate.reason !== 'frozen' ? gate.count : 0)),
  );
  return present<Card['badges'][number]>(
    problem && { status: problem.status, text: problem.status },
    held > 0 && { status: 'held', text: `${formatNumber(held)} held` },
    isFrozen(facts, stream) && { status: 'paused', text: 'frozen' },
    known.due.some((due) => due.stream === stream) && { status: 'pending', text: 'due' },
    ...exceptions.flatMap(({ stream: of, count }) =>
      of === stream ? { status: 'excepted', text: `${formatNumber(count)} excepted` } : [],
    ),
  );
}

export function graphsSection(facts: SituationFacts): Section {
  const { history } = facts;
  if (!history) return section('graphs', 'Requests and objects');
  const { hour, lastNight, nights, days } = history;
  const objects = days.map((day) => sum(nights.map((night) => (night.day === day ? night.sent : 0))));
  const most = mostOf(objects);
  return section('graphs', 'Requests and objects', {
    graphs: present<Graph>(
      requestsGraph('Requests a second, last hour', hour, facts),
      lastNight && requestsGraph('Requests a second, last night', lastNight, facts),
      {
        title: `Objects sent a night, ${MOST_NIGHTS} days`,
        says: `${plural(sum(objects), 'object')} sent by the whole syncs of ${MOST_NIGHTS} days, at most ${formatNumber(most)} in one night.`,
        unit: 'objects',
        points: days.map((day, at) => ({
          label: `${nameOfDay(day)}: ${plural(objects[at] ?? 0, 'object')}`,
          value: objects[at] ?? 0,
        })),
        ends: [nameOfDay(days[0] ?? ''), 'today'],
        isBars: true,
      },
    ),
  });
}

/** Graph of the requests of all processes: average per second in each step, and the busiest second (dotted line). */
function requestsGraph(
  title: string,
  { seconds, steps }: History['hour' | 'lastNight'] & object,
  { now, requestsPerSecond: quota }: SituationFacts,
): Graph | undefined {
  const [first, last] = [steps[0], steps.at(-1)];
  if (!first || !last) return undefined;
  const refused = sum(steps.map(({ throttled }) => throttled));
  const most = mostOf(steps.map(({ fastest }) => fastest));
  const end = new Date(Math.min(now.getTime(), last.at.getTime() + seconds * 1000));
  return {
    title,
    says: `${plural(sum(steps.map(({ requests }) => requests)), 'request')} of all processes, at most ${formatNumber(most)} in one second${quota === undefined ? '' : ` of ${formatNumber(quota)} allowed`}; ${formatNumber(refused)} refused with 429.`,
    unit: 'average, dotted: the most',
    points: steps.map(({ at, requests }) => ({ label: text`${at}`, value: requests / seconds })),
    peaks: steps.map(({ fastest }) => fastest),
    limit: quota === undefined ? undefined : { value: quota, name: `quota ${formatNumber(quota)}` },
    ends: [text`${{ near: first.at, now }}`, text`${{ near: end, now }}`],
  };
}
