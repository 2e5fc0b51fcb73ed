// What `verify` prints: what the service holds beside what was accepted last, what drifts, and what to do about it.
import type { DriftRow } from '../state/drift/read-drift.js';
import type { DriftFields, DriftKind } from '../state/schema.js';
import type { AdoptResult, VerifyResult } from '../sync/verify/verify.js';
import { formatDuration, formatNumber, plural } from '../format.js';
import { table } from './table.js';
import { lines } from './print.js';
import { formatValues } from './values.js';

/** Drifting objects that are printed one by one, and fields of each. */
export const MAX_DRIFTING = 20;
const MAX_FIELDS = 5;

const KINDS = ['changed', 'missing', 'inactive', 'wrong_type'] as const;

/** Behind the name of an object, or `it`. */
export const DRIFT_MEANINGS: Record<DriftKind, string> = {
  changed: 'was changed at the service',
  missing: 'is not at the service',
  inactive: 'was made inactive at the service',
  wrong_type: 'is of another type at the service',
  extra: 'belongs to no record',
  stored_otherwise: 'was sent again, and the service still holds the same other value',
};

export function describeVerify(
  { runId, streams, drifting, storedOtherwise, notComparedAgain, requests }: VerifyResult,
  listed: readonly DriftRow[],
  request: {
    seconds: number;
    /** Streams as they were named; none: all. */
    names: readonly string[];
    sample?: number | undefined;
    extras?: boolean | undefined;
    repair?: boolean | undefined;
  },
): string[] {
  const { seconds, names, sample, extras = false, repair = false } = request;
  const waiting = streams.reduce((sum, one) => sum + one.waiting, 0);
  const compared = streams.reduce((sum, one) => sum + one.compared, 0);
  const inDoubt = streams.reduce((sum, one) => sum + one.inDoubt, 0);
  const left = drifting + storedOtherwise - listed.length;
  const wrongType = streams.reduce((sum, one) => sum + (one.wrong_type ?? 0), 0);
  const sent =
    streams.reduce((sum, one) => sum + KINDS.reduce((of, kind) => of + (one[kind] ?? 0), 0), 0) - wrongType;
  return lines(
    table(
      ['stream', 'compared', ...KINDS.map(titleOf), 'waiting'],
      streams.map((one) => [one.stream, one.compared, ...KINDS.map((kind) => one[kind] ?? 0), one.waiting]),
    ),
    '',
    listed.flatMap(describeDrift),
    left > 0 &&
      `… and ${formatNumber(left)} more: slotsync verify --out drift.csv, or SELECT * FROM slotsync.drift`,
    listed.length > 0 && '',
    streams
      .map(
        ({ type, extra = 0 }) =>
          extra > 0 &&
          `${plural(extra, 'object')} of type ${type} ${extra === 1 ? 'belongs' : 'belong'} to no record${extras ? '' : ': slotsync verify --extras lists them'}.`,
      )
      .filter((line) => line !== false),
    waiting > 0 &&
      `${plural(waiting, 'object')} ${waiting === 1 ? 'was' : 'were'} not compared: ${waiting === 1 ? 'it waits' : 'they wait'} for a sync, or the row is gone.`,
    inDoubt > 0 &&
      `${plural(inDoubt, 'row')} ${inDoubt === 1 ? 'has' : 'have'} not changed, but ${inDoubt === 1 ? 'becomes' : 'become'} another object than was accepted: the next sync looks at ${inDoubt === 1 ? 'it' : 'them'}: slotsync sync`,
    notComparedAgain > 0 &&
      `${plural(notComparedAgain, 'object')} of an earlier verify ${notComparedAgain === 1 ? 'drifts' : 'drift'} still, as far as is known: ${notComparedAgain === 1 ? 'its record is' : 'their records are'} not in sync: slotsync failures`,
    `Run ${runId}: ${sample === undefined ? '' : 'a sample of '}${plural(compared, 'object')} compared in ${formatDuration(seconds)}, ${plural(requests, 'request')}; ${drifting === 0 ? 'no drift' : `${plural(drifting, 'object')} drift${drifting === 1 ? 's' : ''}`}.`,
    sent > 0 &&
      !repair &&
      `To send ${sent === 1 ? 'it' : 'them'} again: ${['slotsync verify', ...names].join(' ')} --repair`,
    describeStoredOtherwise(storedOtherwise),
    wrongType > 0 &&
      'An object of another type is never sent: give it another external id at the service, or its row another one, then: slotsync sync',
    extras &&
      drifting > sent + wrongType &&
      'An object without a record is never changed: link it to its row (slotsync match), or deactivate it at the service.',
  );
}

const titleOf = (kind: DriftKind) => kind.replace('_', ' ');

/** `rooms 'R1' (room_R1) was changed at the service`, and its fields. */
function describeDrift({ stream, localKey, externalId, kind, fields }: DriftRow): string[] {
  const name = kind === 'extra' ? `${stream}: object ${localKey}` : `${stream} '${localKey}'`;
  const differences = Object.entries(fields ?? {});
  return lines(
    `${name}${externalId === null ? '' : ` (${externalId})`} ${DRIFT_MEANINGS[kind]}`,
    describeDriftFields(differences.slice(0, MAX_FIELDS)),
    differences.length > MAX_FIELDS && `  and ${differences.length - MAX_FIELDS} more fields`,
  );
}

export function describeDriftFields(fields: readonly (readonly [string, DriftFields[string]])[]): string[] {
  return fields.map(
    ([field, { here, there }]) =>
      `  ${field}: ${formatValues(there)} at the service, ${formatValues(here)} expected`,
  );
}

export function describeAdopt({ runId, streams, requests }: AdoptResult, seconds: number): string[] {
  const differing = streams.reduce((sum, one) => sum + one.differing, 0);
  const made = differing + streams.reduce((sum, one) => sum + one.equal, 0);
  const ambiguous = streams.reduce((sum, one) => sum + one.ambiguous, 0);
  const unowned = streams.reduce((sum, one) => sum + one.unowned, 0);
  return lines(
    table(
      ['stream', 'adopted', 'as its row', 'differs'],
      streams.map(({ stream, equal, differing: differs }) => [stream, equal + differs, equal, differs]),
    ),
    '',
    ambiguous > 0 &&
      `${plural(ambiguous, 'object')} not adopted: several rows give the external id. See them with: slotsync plan`,
    unowned > 0 &&
      `${plural(unowned, 'object')} of these types ${unowned === 1 ? 'is' : 'are'} given by no row, and stay${unowned === 1 ? 's' : ''} as ${unowned === 1 ? 'it is' : 'they are'}.`,
    `Run ${runId}: ${plural(made, 'record')} made in ${formatDuration(seconds)}, ${plural(requests, 'request')}; nothing was written at the service.`,
    `${differing === 0 ? 'A sync sends only what has changed since' : `A sync sends the ${formatNumber(differing)} that differ`}: slotsync plan, slotsync sync`,
  );
}

/** What no repair mends. Nothing when there is none. */
export function describeStoredOtherwise(objects: number): string[] {
  if (objects === 0) return [];
  const were = objects === 1 ? 'was' : 'were';
  return [
    `${plural(objects, 'object')} ${were} sent again, and the service still holds the same other values. A repair leaves ${objects === 1 ? 'it' : 'them'} out until a value changes. Let the mapping give what the service stores, or leave the field out of it.`,
  ];
}

/** What a verify has left. Nothing when nothing drifts. */
export function describeDriftLeft(objects: number): string[] {
  if (objects === 0) return [];
  const seen = objects === 1 ? 'was seen to differ' : 'were seen to differ';
  return [`${plural(objects, 'object')} ${seen} at the service from what it accepted: slotsync verify`];
}
