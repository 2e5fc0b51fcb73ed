// Documents about drift: objects at the service that differ from what the service accepted, as found by the last
// verify. Objects that belong to no record are also listed, but do not count as drift.
import { type DriftRow, isRepaired } from '../state/drift.js';
import { describeExceptions } from './exceptions.js';
import type { DriftFields, DriftKind } from '../state/schema.js';
import type { AdoptResult, VerifyResult } from '../sync/verify/verify.js';
import { counted, formatDuration, formatNumber, lines, plural, present, sum } from '../text/format.js';
import {
  linkToRecord,
  section,
  text,
  withQuery,
  type Document,
  type Point,
  type Section,
  type Table,
  type Text,
  formatValues,
} from './document.js';

export const MOST_DRIFTING = 20;
const MOST_FIELDS = 5;

const KINDS = ['changed', 'missing', 'inactive', 'wrong_type'] as const;

/** Meaning of each kind of drift, as words that follow the name of an object or `it`. */
export const DRIFT_MEANINGS: Record<DriftKind, string> = {
  changed: 'was changed at the service',
  missing: 'is not at the service',
  inactive: 'was made inactive at the service',
  wrong_type: 'is of another type at the service',
  extra: 'belongs to no record',
  stored_otherwise: 'was sent again, but the service stores another value',
  kept: 'keeps values of the service because of field rules',
};

const nameOfKind = (kind: DriftKind) => kind.replaceAll('_', ' ');

/** Document of the result of one verify. `listed` are the first of the drifting objects that the verify found. */
export function verifyDocument(
  result: VerifyResult,
  listed: readonly DriftRow[],
  request: {
    seconds: number;
    /** Names of streams as given on the command line. If empty, all streams were verified. */
    names: readonly string[];
    sample?: number | undefined;
    extras?: boolean | undefined;
    repair?: boolean | undefined;
  },
): Document {
  const { streams, drifting, storedOtherwise, kept } = result;
  const listedExtra = request.extras ? result.extra : 0;
  return {
    title: `Run ${result.runId}`,
    lead: verifyLead(result, request),
    sections: [
      byStream(
        ['compared', ...KINDS.map(nameOfKind), 'waiting'],
        streams.map((tally) => [
          tally.stream,
          tally.compared,
          ...KINDS.map((kind) => tally[kind] ?? 0),
          tally.waiting,
        ]),
      ),
      driftSection(listed, drifting + storedOtherwise + kept + listedExtra),
    ],
  };
}

function verifyLead(
  result: VerifyResult,
  { seconds, names, sample, extras = false, repair = false }: Parameters<typeof verifyDocument>[2],
): string[] {
  const { runId, streams, drifting, storedOtherwise, kept, notComparedAgain, requests } = result;
  const sumOf = (name: DriftKind | 'compared' | 'waiting' | 'excepted' | 'inDoubt') =>
    sum(streams.map((tally) => tally[name] ?? 0));
  const [waiting, inDoubt, wrongType] = [sumOf('waiting'), sumOf('inDoubt'), sumOf('wrong_type')];
  const sent = sum(KINDS.map(sumOf)) - wrongType;
  return lines(
    `Run ${runId}: ${sample === undefined ? '' : 'a sample of '}${plural(sumOf('compared'), 'object')} compared in ${formatDuration(seconds)}, ${plural(requests, 'request')}; ${drifting === 0 ? 'no drift' : counted`${drifting} object{|s} {drifts|drift}`}.`,
    notComparedAgain > 0 &&
      counted`${notComparedAgain} object{|s} of an earlier verify {drifts|drift} as of that verify, so the exit code is 1: {its record is|their records are} not in sync, and could not be compared again: slotsync failures`,
    sent > 0 &&
      !repair &&
      `To send ${sent === 1 ? 'it' : 'them'} again: ${['slotsync verify', ...names].join(' ')} --repair`,
    describeStoredOtherwise(storedOtherwise),
    describeKeptObjects(kept),
    wrongType > 0 &&
      'An object of another type is never sent: change the external id of the object or of the row, then: slotsync sync',
    describeExtra(result.extra, extras),
    waiting > 0 &&
      counted`${waiting} object{|s} {was|were} not compared: {it waits|they wait} for a sync, or the row was deleted.`,
    describeExceptions(sumOf('excepted')),
    inDoubt > 0 &&
      counted`${inDoubt} row{|s} {has|have} not changed, but {maps|map} to a different object than was accepted: the next sync checks {it|them}: slotsync sync`,
  );
}

const byStream = (headings: readonly string[], rows: Table['rows']): Section =>
  section('streams', 'By stream', { table: { headings: ['stream', ...headings], rows } });

interface VerifiedStream {
  stream: string;
  verifiedAt: Date | null;
  objects: number | null;
  repairable: number;
  extra: number;
}

export function driftDocument(
  counts: readonly { stream: string; kind: DriftKind; count: number }[],
  verified: readonly VerifiedStream[],
  listed: readonly DriftRow[],
): Document {
  return {
    title: 'Drift',
    lead: [
      text`Objects that differ at the service from what it accepted, as of the last verify. To compare again: ${{ command: 'slotsync verify' }}`,
    ],
    sections: [
      {
        ...byStream(
          ['last verified', 'objects', 'without a record', 'drift'],
          verified.map(({ stream, verifiedAt, objects, extra }) => [
            stream,
            verifiedAt ? text`${{ minute: verifiedAt }}` : 'never verified',
            objects ?? '–',
            extra,
            describeKinds(
              counts.filter(({ stream: of, kind }) => of === stream && kind !== 'extra'),
              verifiedAt,
            ),
          ]),
        ),
        paragraphs: verified.length === 0 ? ['No records yet.'] : [],
      },
      section('repairs', 'To repair', {
        points: verified.map(({ stream, repairable }) => repairable > 0 && repairPoint(stream, repairable)),
      }),
      driftSection(listed, sum(counts.map(({ count }) => count))),
    ],
  };
}

function describeKinds(
  kinds: readonly { kind: DriftKind; count: number }[],
  verifiedAt: Date | null,
): string {
  if (kinds.length > 0)
    return kinds.map(({ kind, count }) => `${formatNumber(count)} ${nameOfKind(kind)}`).join(', ');
  return verifiedAt ? 'none' : 'not known';
}

/** List entry such as `3 objects of rooms differ at the service`, with the command that repairs them. */
const repairPoint = (stream: string, repairable: number): Point => ({
  status: 'changed',
  text: counted`${repairable} object{|s} of ${stream} {differs|differ} at the service`,
  commands: [
    {
      command: `slotsync verify ${stream} --repair`,
      href: withQuery('/drift/repair', { stream }),
      label: 'Repair …',
      about: `${plural(repairable, 'object')} of ${stream}`,
    },
  ],
});

function driftSection(listed: readonly DriftRow[], total: number): Section {
  return section('objects', 'Objects', {
    paragraphs: [
      total > listed.length &&
        `The first ${listed.length} of ${formatNumber(total)}. All of them: slotsync verify --out drift.csv, or SELECT * FROM slotsync.drift`,
    ],
    points: listed.map(driftToPoint),
  });
}

const nextOf = (kind: DriftKind) => {
  if (isRepaired(kind)) return 'a repair sends the object again';
  if (kind === 'extra') return 'to link it to a row: slotsync match';
  return kind === 'kept' ? 'to overwrite it once from the mirror: slotsync take' : 'correct it by hand';
};

/** List entry such as `rooms 'R1' (room_R1) was changed at the service`, with the fields that differ. */
function driftToPoint({ stream, localKey, externalId, kind, fields, seenAt }: DriftRow): Point {
  const name: Text = kind === 'extra' ? `${stream}: object ${localKey}` : linkToRecord(stream, localKey);
  const differences = Object.entries(fields ?? {});
  const more = differences.length - MOST_FIELDS;
  return {
    status: nameOfKind(kind),
    text: text`${name}${externalId !== null && ` (${externalId})`} ${DRIFT_MEANINGS[kind]}`,
    details: present<Text>(
      describeDriftFields(differences.slice(0, MOST_FIELDS)),
      more > 0 && `and ${more} more fields`,
      text`Seen ${{ minute: seenAt }}; ${nextOf(kind)}.`,
    ),
  };
}

export const describeDriftFields = (fields: readonly (readonly [string, DriftFields[string]])[]): string[] =>
  fields.map(
    ([field, { here, there }]) =>
      `${field}: ${formatValues(there)} at the service, ${formatValues(here)} expected`,
  );

/** Document of the result of `slotsync verify --adopt`, which makes records for objects that have no record. */
export function adoptDocument({ runId, streams, requests }: AdoptResult, seconds: number): Document {
  const sumOf = (name: 'differing' | 'equal' | 'ambiguous' | 'unowned') =>
    sum(streams.map((adopted) => adopted[name]));
  const [differing, ambiguous, unowned] = [sumOf('differing'), sumOf('ambiguous'), sumOf('unowned')];
  return {
    title: `Run ${runId}`,
    lead: lines(
      `Run ${runId}: ${plural(differing + sumOf('equal'), 'record')} made in ${formatDuration(seconds)}, ${plural(requests, 'request')}; nothing was written at the service.`,
      ambiguous > 0 &&
        `${plural(ambiguous, 'object')} not adopted: several rows have the same external id. To list the rows: slotsync plan`,
      unowned > 0 &&
        counted`${unowned} object{|s} of these types {has|have} the external id of no row, and {stays as it is|stay as they are}.`,
      `${differing === 0 ? 'A sync sends only what has changed since' : `A sync sends the ${formatNumber(differing)} that differ`}: slotsync plan, slotsync sync`,
    ),
    sections: [
      byStream(
        ['adopted', 'as its row', 'differs'],
        streams.map(({ stream, equal, differing: differs }) => [stream, equal + differs, equal, differs]),
      ),
    ],
  };
}

/** Sentence about objects that belong to no record, which slotsync never changes. `areListed`: they follow. False for zero. */
export const describeExtra = (objects: number, areListed = false): string | false =>
  objects > 0 &&
  counted`${objects} object{|s} {belongs|belong} to no record, and {is left as it is|are left as they are}${areListed ? '' : `: slotsync verify --extras lists ${objects === 1 ? 'it' : 'them'}`}.`;

/** Sentence about objects that keep values entered at the service, because of field rules. False for zero. */
export const describeKeptObjects = (objects: number): string | false =>
  objects > 0 &&
  counted`${objects} object{|s} {keeps|keep} values that people entered at the service, because of field rules. This is not drift, and no repair changes them.`;

/**
 * Sentence about objects that a repair skips, because the service stores other values than it accepts. False for zero.
 */
export const describeStoredOtherwise = (objects: number): string | false =>
  objects > 0 &&
  counted`${objects} object{|s} {was|were} sent again, but the service stores other values. A repair skips {it|them} until a value changes. Let the mapping return the stored value, or remove the field from the mapping.`;
