// Document of one record: its state and history, its row, the object made from the row, and the object at the service.
import { remedyFor } from '../errors/error-catalogue.js';
import type { FoundObject } from '../destination/destination.js';
import type { Chain } from '../situation/chains.js';
import type { Waiting } from '../state/records/read/waiting-chains.js';
import type { Stream } from '../streams/stream.js';
import { describeRepeatedKeys } from '../streams/local-key.js';
import type { RecordExplained } from '../sync/operator/explain.js';
import { nameOfGate, type Gate } from '../state/gates/gates.js';
import type { NotedWrite } from '../state/history.js';
import type { WrittenField } from '../streams/destination-object.js';
import { plural, present } from '../text/format.js';
import {
  linkToRecord,
  linkToRun,
  section,
  text,
  type Document,
  type Fact,
  type Section,
  type Sparse,
  type Text,
  describeChange,
  describeKept,
  formatValue,
  formatValues,
  factsOfFields,
} from './document.js';
import { describeDriftFields, DRIFT_MEANINGS } from './drift.js';
import { commandFor, retryCommand } from '../situation/commands.js';
import { describeException, endCommand } from './exceptions.js';
import { describeChain, nextOfAbsent, nextStep } from './causes.js';

/** A record as stored in the state. `chain`: records that it waits for. `held`: gate that holds the record. */
export interface KnownRecord extends Pick<
  RecordExplained,
  | ('stream' | 'key' | 'record' | 'link' | 'exception' | 'drift' | 'batches' | 'writes')
  | ('waiting' | 'waitingChanges')
> {
  former: readonly { externalId: string }[];
  chain?: Chain | undefined;
  held?: Gate | undefined;
}

/** `sides` is the record as just read from the mirror and the service. Without `sides`, only the state is shown. */
export function recordDocument(known: KnownRecord, sides?: RecordExplained): Document {
  const { stream, key } = known;
  const next = sides ? nextOfRecord({ ...sides, chain: known.chain, held: known.held }) : nextOfState(known);
  return {
    title: `${stream} '${key}'`,
    lead: present<Text>(next !== undefined && `Next: ${next}`),
    sections: [
      inState(known, sides),
      ...(sides ? sidesSections(sides) : []),
      writesSection(known.writes),
      history(known),
    ],
  };
}

function inState(
  { stream, key, record, chain, held, exception, link, former, drift, waiting, waitingChanges }: KnownRecord,
  sides?: RecordExplained,
): Section {
  const [parentStream, parentKey] = JSON.parse(record?.waitsFor ?? '[]') as string[];
  const facts: Sparse<Fact> = [
    ['Record', record ? describeRecord(record) : 'none: never sent'],
    !!record?.errorMessage && ['Why', `${record.errorCode}: ${record.errorMessage}`],
    parentStream !== undefined &&
      parentKey !== undefined && [
        'Waits for',
        chain ? text`it waits for ${describeChain(chain)}` : linkToRecord(parentStream, parentKey),
      ],
    ...waiting.map((of): Fact => [`Waited for by ${of.stream}`, describeWaiting(of)]),
    held && ['Held', text`${nameOfGate(held)}, since ${held.since}, by ${linkToRun(held.runId)}`],
    exception && ['Exception', describeException(exception)],
    record?.inDoubt && [
      'In doubt',
      'the object may differ from what was accepted last; the next run reads it',
    ],
    record?.endsAt && ['Ends', text`${record.endsAt}; after the row is deleted, graceDays count from then`],
    record?.checkAfter && ['Checked again', describeCheck(record, record.checkAfter)],
    link && ['Link', describeLink(link)],
    link && ['To undo the link', text`${{ command: commandFor('slotsync match --unlink', stream, key) }}`],
    drift && [
      drift.kind === 'kept' ? 'Kept' : 'Drift',
      text`it ${DRIFT_MEANINGS[drift.kind]}, ${{ text: 'seen', href: '/drift' }} ${drift.seenAt}`,
    ],
    ...(sides?.former.map((object): Fact => [
      `Former object ${object.externalId}`,
      describeFormer(sides, object),
    ]) ?? former.map(({ externalId }): Fact => ['Former object', externalId])),
    waitingChanges > 0 && ['Inbox', 'the key waits for a worker'],
  ];
  return section('state', 'In the state', {
    facts,
    points: [
      drift &&
        drift.kind !== 'kept' && {
          text: 'Drift',
          details: describeDriftFields(Object.entries(drift.fields ?? {})),
          next:
            drift.kind === 'stored_otherwise'
              ? 'A repair skips this object until a value changes: correct the mapping, or the object at the service.'
              : `To repair it: slotsync verify ${stream} --repair`,
        },
    ],
  });
}

function describeRecord(record: NonNullable<KnownRecord['record']>): Text {
  const { status, externalId, rowExternalId, destinationId, syncedAt, objectHash, attempts, runId } = record;
  const name = externalId ?? rowExternalId;
  const accepted =
    syncedAt !== null
      ? text`, accepted ${syncedAt}`
      : objectHash !== null && status === 'synced'
        ? ', found equal, never written'
        : ', never accepted';
  return text`${{ status }}${name !== null && `, as ${name}`}${destinationId !== null && `, number ${destinationId}`}${accepted}${attempts > 0 && `, ${plural(attempts, 'attempt')}`}${runId !== null && text`, last changed by ${linkToRun(runId)}`}`;
}

/** Returns text such as `36 records, since 2026-11-22 07:12 CET, such as courses 'DB-101'`. */
const describeWaiting = ({ stream, records, since, example }: Waiting[number]): Text =>
  text`${plural(records, 'record')}${since !== null && text`, since ${since}`}, such as ${linkToRecord(stream, example)}`;

function describeCheck({ status, refusedHash }: NonNullable<KnownRecord['record']>, checkAfter: Date): Text {
  return status === 'failed' && refusedHash !== null
    ? text`the service refused this object alone: slotsync sends it once more after ${checkAfter}`
    : text`a write without an answer may still be carried out: slotsync reads the object after ${checkAfter}`;
}

function describeLink(link: NonNullable<RecordExplained['link']>): Text {
  const by = {
    match: link.fields === null ? 'by an operator’s match' : `by a match of ${link.fields.join(', ')}`,
    rename: 'by a rename',
  }[link.linkedBy];
  const name = link.assignsId
    ? `the object with number ${link.destinationId}, which gets the external id ${link.externalId}`
    : link.externalId;
  return text`to ${name}, ${by}, ${link.linkedAt}`;
}

/** Describes, as found at the service, an object that the record owned before its external id changed. */
function describeFormer(
  { stream, key }: RecordExplained,
  { there, isUndecided }: RecordExplained['former'][number],
): Text {
  if (!there) return 'not at the service';
  const command = isUndecided
    ? retryCommand({ stream, localKey: key }, '--retire-former')
    : `slotsync sync ${stream}`;
  return text`number ${there.id}, ${there.active ? text`active; to deactivate it: ${{ command }}` : 'inactive'}`;
}

function sidesSections(sides: RecordExplained): Section[] {
  const { stream, key, row, hiddenColumns, readFrom, object, problem, there, externalId, changes, kept } =
    sides;
  const takeCommand = commandFor('slotsync take', stream, key);
  return [
    section('row', 'Row in the mirror', {
      paragraphs: [
        !row && `No row. Source: ${readFrom}.`,
        hiddenColumns > 0 &&
          `${plural(hiddenColumns, 'column')} not shown, because the mapping does not read them. To show all columns: ${commandFor('slotsync explain', stream, key, '--all')}`,
      ],
      facts: Object.entries(row ?? {}).map(([column, value]) => [column, formatValue(value)]),
    }),
    section('object', 'Object made from the row', {
      paragraphs: [!object && `None${problem === undefined ? '' : `: ${problem}`}.`],
      facts: object && [
        ['Object', `${object.extId}, type ${object.typeId}`],
        ...factsOfFields(object.fields),
      ],
    }),
    section('there', 'At the service', {
      paragraphs: [
        !there &&
          (externalId === undefined
            ? 'Not looked up, because the row has no external id.'
            : `No object has the external id ${externalId}.`),
      ],
      facts: there && [
        ['Object', `number ${there.id}, ${there.active ? 'active' : 'inactive'}`],
        ...factsOfFields(there.fields),
      ],
    }),
    section('changes', 'Changes by the next write', {
      paragraphs:
        object && changes.length === 0 ? ['A write would change nothing.'] : changes.map(describeChange),
    }),
    section('kept', 'Fields that keep the value of the service', {
      paragraphs: kept.map(describeKept),
      facts: [
        kept.length > 0 && ['To overwrite them once from the mirror', text`${{ command: takeCommand }}`],
      ],
    }),
  ];
}

function history({ batches }: KnownRecord): Section {
  return section('history', 'Runs that included it, newest first', {
    table: {
      headings: ['run', 'kind', 'operation', 'batch', 'state', 'error', 'at'],
      rows: batches.map(({ runId, kind, batchId, operation, state, errorCode, at }) => [
        text`${linkToRun(runId)}`,
        kind,
        operation ?? '–',
        String(batchId),
        state,
        errorCode ?? '–',
        text`${new Date(at)}`,
      ]),
    },
  });
}

export const writesSection = (writes: readonly NotedWrite[]): Section =>
  section('writes', 'Accepted writes, newest first', {
    points: writes.map(({ at, operation, fields, fieldValues, runId, startedBy }) => ({
      text: text`${at}: ${operation}, ${linkToRun(runId)}, started by a ${startedBy}`,
      details: fieldValues?.map(describeWritten) ?? [fields.join(', ')],
    })),
  });

const describeWritten = ({ field, old, new: values }: WrittenField): string =>
  old ? describeChange({ field, old, new: values }) : `${field}: ${formatValues(values)}`;

export function unownedDocument({ name, objectTypes }: Stream, object: FoundObject): Document {
  const { id, extId, typeId, active, fields } = object;
  const known = extId === undefined ? 'no external id' : `external id ${extId}`;
  return {
    title: `Object ${id}`,
    lead: [
      `No row or record of ${name} owns this object.`,
      objectTypes.has(typeId)
        ? `Next: to link a row to it: slotsync match ${name}`
        : `Next: no action needed: ${name} has objects of type ${[...objectTypes].join(', ')}`,
    ],
    sections: [
      section('there', 'At the service', {
        facts: [
          ['Object', `number ${id}, ${known}, type ${typeId}, ${active ? 'active' : 'inactive'}`],
          ...factsOfFields(fields),
        ],
      }),
    ],
  };
}

/** Returns the next step according to the state alone. Undefined if the record is in sync there. */
function nextOfState(known: KnownRecord): string | undefined {
  const { exception, record, stream, key, chain, held, waiting, waitingChanges } = known;
  if (exception) return describeExceptedNext(stream, key);
  if (held) return describeHeldNext(held);
  if (!record && waiting.length > 0) return nextOfAbsent(stream, key);
  if (!record || record.status === 'synced' || record.status === 'retired') return undefined;
  const isInInbox = record.status === 'failed' && waitingChanges > 0;
  return nextStep({ ...record, stream, localKey: key, chain, isInInbox });
}

const describeExceptedNext = (stream: string, key: string): string =>
  `no action needed: an exception protects the object. To end the exception: ${endCommand(stream, key)}`;

const describeHeldNext = (gate: Gate): string =>
  `it is held (${nameOfGate(gate)}); for the reason and the remedy: slotsync failures ${gate.stream} --status held`;

export function nextOfRecord(explained: RecordExplained & Pick<KnownRecord, 'chain' | 'held'>): string {
  const { stream, key, row, record, chain, held, there, problem } = explained;
  const { readFrom, repetitions, isWaiting, changes, kept, isAccepted, waiting, waitingChanges } = explained;
  const nextRun = (does: string) => `the next run ${does}: slotsync sync ${stream}`;
  if (repetitions > 0) return `${describeRepeatedKeys(repetitions, [key])}. ${remedyFor('key_not_unique')}`;
  if (explained.exception) return describeExceptedNext(stream, key);
  if (waitingChanges > 0) return 'no action needed: the key is in the inbox, and a worker processes it';
  if (held && !isAccepted) return describeHeldNext(held);
  if (explained.leftOut)
    return `left out: the stream's \`operations\` do not include ${explained.leftOut}, so nothing is sent`;
  if (record && record.status !== 'synced' && record.status !== 'retired') {
    return nextStep({ ...record, stream, localKey: key, chain, isInInbox: false });
  }
  if (!row && record?.status === 'retired') return 'no action needed: the object is deactivated';
  if (!row && !record && waiting.length > 0)
    return `add the row to ${readFrom}, or correct the rows that refer to it; then: slotsync sync`;
  if (!row) return nextRun('decides');
  if (isWaiting) return 'a run sends the record when the record that it refers to is accepted: slotsync sync';
  if (problem !== undefined) return nextRun('reports the same');
  if (!record || record.status === 'retired') return nextRun('creates it');
  if (!isAccepted || record.inDoubt) return nextRun('sends it');
  if (changes.length === 0)
    return kept.length === 0
      ? 'no action needed: the service has what it accepted'
      : 'no action needed: field rules keep the differing values';
  if (explained.drift?.kind === 'stored_otherwise')
    return 'no action needed: the service stores other values than it accepts';
  const how = there ? 'the object was changed at the service' : 'the object is missing at the service';
  return `${how}; a run sends it again when its row changes, or: slotsync verify ${stream} --repair`;
}
