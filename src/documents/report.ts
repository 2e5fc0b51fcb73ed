// Document for the morning about a period or a run: what needs an operator, and what happened.
import { concerns, type Concern } from './concerns/concerns.js';
import type { ReportFacts } from '../situation/report.js';
import { listVerified } from '../situation/situation.js';
import { formatDuration, formatNumber, plural, present, sum } from '../text/format.js';
import { countsByStream, section, text, type Document, type Section, type Text } from './document.js';
import { actionsSection } from './actions.js';
import { causesSection, statusInWords } from './causes.js';
import { describeHeldRecords, describeSettled, describeUnsent } from './failures.js';
import {
  attentionSection,
  describeAnswer,
  describeNotInSync,
  noticesSection,
  loadsSection,
  verifiedSection,
} from './situation.js';
import { linkToRunNumber } from './runs.js';

const MOST_CAUSES = 8;

export function reportDocument(facts: ReportFacts): Document {
  const { binding, run } = facts;
  const all = concerns(facts).filter((concern) => run === null || !isOfAnotherRun(concern, run.id));
  return {
    title: run ? `Report of run ${run.id}` : 'Report',
    lead: [
      binding
        ? `Organization ${binding.organizationId} at ${binding.baseUrl}.`
        : 'Not bound to a service yet. The first sync binds the state to its service.',
      describePeriod(facts),
    ],
    sections: present<Section>(
      attentionSection(all, facts.now),
      noticesSection(
        all.filter(({ kind }) => kind !== 'records'),
        facts,
      ),
      changed(facts),
      runs(facts),
      actionsSection(facts.actions),
      notInSync(facts),
      loadsSection(facts),
      drift(facts),
      bookings(facts),
      requests(facts),
    ),
  };
}

/** Returns true if the concern belongs to another run. The report of one run omits concerns of other runs. */
function isOfAnotherRun({ kind, facts }: Concern, id: number): boolean {
  return (kind === 'gate' || kind === 'run_failed' || kind === 'run_partial') && facts.runId !== id;
}

const REASONS: Record<ReportFacts['period']['because'], string> = {
  since: 'as asked for',
  run: 'from its request to its end',
  nightly_run: 'since the nightly sync started',
  nightly: 'since the last nightly sync was due',
  day: 'the last 24 hours, because no nightly sync was due yet',
};

function describePeriod({ period, run }: ReportFacts): Text {
  const { from, to, because } = period;
  const why = run && run.finishedAt === null ? 'from its request until now' : REASONS[because];
  return text`From ${{ minute: from }} to ${{ minute: to }}: ${why}.`;
}

const OPERATIONS = ['create', 'update', 'retire', 'repair'] as const;
const ACCEPTED = [
  ['create', 'created'],
  ['update', 'updated'],
  ['retire', 'deactivated'],
] as const;
const OUTCOMES = ['unchanged', 'deferred', 'failed', 'dead'] as const;

function changed({ streams, runCounts }: ReportFacts): Section {
  type Row = (typeof streams)[number];
  const runs = sum(runCounts.map((one) => one.runs));
  return section('changed', 'What changed', {
    paragraphs: [
      streams.length === 0
        ? 'No run planned or sent changes.'
        : '“To create”, “to update” and so on are planned; “created”, “updated” and “deactivated” were accepted by the service. A run that began earlier counts completely.',
      streams.length > 0 &&
        runs > 1 &&
        `The numbers are sums over ${formatNumber(runs)} runs: a record counts once in each run that included it.`,
    ],
    table: countsByStream(streams, [
      ...OPERATIONS.map(
        (name) => [`to ${name === 'retire' ? 'deactivate' : name}`, (row: Row) => row.planned[name]] as const,
      ),
      ...ACCEPTED.map(([name, heading]) => [heading, (row: Row) => row.accepted[name]] as const),
      ...OUTCOMES.map((name) => [statusInWords(name), (row: Row) => row.outcomes[name]] as const),
    ]),
  });
}

function runs({ listed, runCounts }: ReportFacts): Section {
  const kinds = [...new Set(runCounts.map(({ kind }) => kind))];
  const counts = kinds.map((kind) => {
    const ofKind = runCounts.filter((counted) => counted.kind === kind);
    return `${kind}: ${ofKind.map(({ status, runs: number }) => `${formatNumber(number)} ${status}`).join(', ')}`;
  });
  return section('runs', 'Runs', {
    paragraphs: [counts.length === 0 ? 'None.' : `${counts.join('; ')}.`],
    table: {
      headings: ['run', 'kind', 'started', 'took', 'status'],
      rows: listed.map(({ id, kind, requestedAt, finishedAt, pausedAt, status, errorCode }) => [
        linkToRunNumber(id),
        kind,
        text`${{ minute: requestedAt }}`,
        finishedAt ? formatDuration((finishedAt.getTime() - requestedAt.getTime()) / 1000) : '–',
        `${pausedAt && !finishedAt ? 'paused' : status}${errorCode === null ? '' : `: ${errorCode}`}`,
      ]),
    },
  });
}

/** Section of records that are not in sync. Does not say that all are in sync while some are held. */
function notInSync(facts: ReportFacts): Section {
  const { causes, known, unsettled, now } = facts;
  const numbers = unsettled > 0 ? describeNotInSync(facts) : present<Text>(describeHeldRecords(causes));
  return {
    ...causesSection(
      causes.filter(({ status }) => status !== 'held'),
      { most: MOST_CAUSES, now },
    ),
    id: 'failures',
    title: 'Not in sync',
    paragraphs:
      numbers.length === 0 ? [describeSettled(known)] : present<Text>(numbers, describeUnsent(known)),
  };
}

function drift(facts: ReportFacts): Section {
  const { driftChanges } = facts;
  const verified = verifiedSection(facts);
  return {
    ...verified,
    paragraphs:
      listVerified(facts).length === 0
        ? ['No record yet.']
        : [
            `Drift in this period: ${formatNumber(driftChanges.found)} found, ${formatNumber(driftChanges.mended)} resolved.`,
            ...(verified.paragraphs ?? []),
          ],
  };
}

/** Section that counts bookings by verdict. A concern describes the bookings that disagree. */
function bookings({ bookings: counted, discrepancies, verdictChanges }: ReportFacts): Section | undefined {
  if (counted.length === 0 && verdictChanges === 0) return undefined;
  const isListed = (verdict: string) => discrepancies.some((one) => one.verdict === verdict);
  return section('bookings', 'Bookings', {
    paragraphs: [`Verdicts that changed in this period: ${formatNumber(verdictChanges)}.`],
    table: {
      headings: ['verdict', 'bookings', 'with a problem in the mirror'],
      rows: counted.map(({ verdict, count, problems }) => [
        text`${{ status: verdict }}`,
        isListed(verdict) ? { parts: [{ text: count, href: '/bookings' }] } : count,
        problems,
      ]),
    },
  });
}

function requests({ requests: sent, binding }: ReportFacts): Section {
  const { requests: total, throttled, fastest, fastestAt, perSecond, allowed } = sent;
  const { answeredAt = null, answer = null, succeededAt = null } = binding ?? {};
  const percent = (100 * total) / allowed;
  const share = percent > 0 && percent < 0.1 ? 'less than 0.1' : percent.toFixed(1);
  return section('requests', 'Requests', {
    paragraphs: [
      `${plural(total, 'request')} of all processes: ${share} % of the quota of ${perSecond} a second over this period; ${formatNumber(throttled)} refused with 429.`,
      fastestAt && text`Fastest second: ${plural(fastest, 'request')}, at ${fastestAt}.`,
      answeredAt &&
        text`Last answer of the service: ${describeAnswer(answer)}, ${answeredAt}; last success ${succeededAt ?? '–'}.`,
    ],
  });
}
