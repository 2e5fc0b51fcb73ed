// One record: what the state knows of it, and, when somebody asks for it, its row and its object. And the search for it.
import { formatTime } from '../format.js';
import { html, type Html } from '../html.js';
import type { FoundObject } from '../destination/destination.js';
import { readChainOf, type Chain } from '../readings/chains.js';
import { nextOfRecord } from '../report/explain.js';
import { commandFor, describeChain, nextStep } from '../report/failures.js';
import { DRIFT_MEANINGS } from '../report/verify.js';
import { formatValue, formatValues } from '../report/values.js';
import { readDriftOf } from '../state/drift/read-drift.js';
import { listFormerObjects } from '../state/records/change-hands.js';
import { findRecords } from '../state/records/find-records.js';
import { readLinks } from '../state/records/links.js';
import { countChangesOf, listBatchesOf, readRecord } from '../state/records/read-records.js';
import type { RecordExplained } from '../sync/explain-record.js';
import { command, facts, formToken, link, pathOf, status, table, time } from './parts.js';
import { PageNotFound, type Page, type Section, type View } from './view.js';

const MOST_BATCHES = 20;
const MOST_FOUND = 50;

export const searchPage: Page = async (sources, { query, address }) => {
  const wanted = query.get('key')?.trim() ?? '';
  const found = await sources.read(address, (db) => findRecords(db, wanted, MOST_FOUND));
  return () => ({
    title: 'Records',
    lead: html`<p>Records whose key or external id is <b>${wanted}</b>:</p>`,
    sections: [
      {
        id: 'found',
        title: 'Found',
        body:
          found.length === 0
            ? html`<p>None in the state.</p>`
            : table(
                'Records',
                ['record', 'external id', 'status'],
                found.map((row) => [
                  link(pathOf('records', row.stream, row.localKey), `${row.stream} ${row.localKey}`),
                  row.externalId ?? '–',
                  status(row.status),
                ]),
              ),
      },
    ],
  });
};

/** What was read of all three sides, and when. */
export interface Shown {
  explained: RecordExplained;
  at: Date;
}

export const recordPage: Page = async (sources, { params, address }) => {
  const { stream = '', key = '' } = params;
  const read = await sources.read(address, async (db) => {
    const record = await readRecord(db, stream, key);
    return {
      record,
      chain: await readChainOf(db, record),
      link: (await readLinks(db, stream, [key])).get(key),
      former: await listFormerObjects(db, stream, [key]),
      drift: await readDriftOf(db, { stream, localKey: key }),
      batches: await listBatchesOf(db, stream, key, MOST_BATCHES),
      waitingChanges: await countChangesOf(db, stream, key),
    };
  });
  if (!read.record && !read.link && !read.drift && read.batches.length === 0)
    throw new PageNotFound(`The state has no record '${key}' of ${stream}.`);
  return (view) => {
    const shown = view.session?.shown.get(pathOf('records', stream, key)) as Shown | undefined;
    return {
      title: `${stream} ${key}`,
      sections: [
        inState(read, { stream, key }, view),
        history(read, view),
        ...(shown ? showSides(shown, view) : [askForSides({ stream, key }, view)]),
      ],
    };
  };
};

interface Known {
  record: Awaited<ReturnType<typeof readRecord>>;
  chain: Chain | undefined;
  link: { externalId: string; linkedBy: string; linkedAt: string } | undefined;
  former: readonly { externalId: string }[];
  drift: Awaited<ReturnType<typeof readDriftOf>>;
  batches: Awaited<ReturnType<typeof listBatchesOf>>;
  waitingChanges: number;
}

function inState(
  { record, chain, link: linked, former, drift, waitingChanges }: Known,
  { stream, key }: { stream: string; key: string },
  view: View,
): Section {
  const [parentStream, parentKey] = JSON.parse(record?.waitsFor ?? '[]') as string[];
  const waitsFor =
    parentStream !== undefined && parentKey !== undefined
      ? { stream: parentStream, localKey: parentKey }
      : null;
  const isUnsettled = record && record.status !== 'synced' && record.status !== 'retired';
  const next = isUnsettled
    ? nextStep({
        ...record,
        stream,
        localKey: key,
        chain,
        isInInbox: record.status === 'failed' && waitingChanges > 0,
      })
    : undefined;
  const body = facts([
    ['Status', record ? status(record.status) : 'no record; it was never sent'],
    record && ['External id', record.externalId ?? record.rowExternalId ?? '–'],
    record && ['Number at the service', record.destinationId === null ? '–' : String(record.destinationId)],
    record && ['Accepted last', record.syncedAt ? time(record.syncedAt, view) : 'never'],
    !!record?.errorMessage && ['Why', html`${record.errorCode}: ${record.errorMessage}`],
    waitsFor && [
      'Waits for',
      link(pathOf('records', waitsFor.stream, waitsFor.localKey), `${waitsFor.stream} ${waitsFor.localKey}`),
    ],
    chain && ['Up to the end', describeChain(chain)],
    record?.inDoubt && [
      'In doubt',
      'the service may hold something other than what was accepted last; it is asked again',
    ],
    record?.checkAfter && ['Looked at again', html`after ${time(record.checkAfter, view)}`],
    record && record.attempts > 0 && ['Attempts', String(record.attempts)],
    former.length > 0 && ['Former objects', former.map(({ externalId }) => externalId).join(', ')],
    linked && [
      'Linked',
      html`to ${linked.externalId}, by a ${linked.linkedBy}, ${time(new Date(linked.linkedAt), view)}`,
    ],
    drift && [
      'Drift',
      html`it ${DRIFT_MEANINGS[drift.kind]}, seen ${time(new Date(drift.seenAt), view)}: ${link('/drift', 'drift')}`,
    ],
    waitingChanges > 0 && ['Inbox', 'it waits there; a worker processes it'],
    next !== undefined && ['Next', next],
  ]);
  return { id: 'state', title: 'In the state', body };
}

function history({ batches }: Known, view: View): Section {
  const rows = batches.map(({ runId, kind, operation, state, errorCode, at }) => [
    link(pathOf('runs', runId), String(runId)),
    kind,
    operation ?? '–',
    state,
    errorCode ?? '',
    time(new Date(at), view),
  ]);
  const body =
    rows.length === 0
      ? html``
      : table(
          'Runs that included it, newest first',
          ['run', 'kind', 'operation', 'batch', 'error', 'at'],
          rows,
        );
  return { id: 'history', title: 'History', body, isEmpty: rows.length === 0 };
}

/** Reading them costs requests, and shows the row: so only who signed in asks for it. */
function askForSides({ stream, key }: { stream: string; key: string }, view: View): Section {
  const typed = html`<p>For the row and the object: ${command(commandFor('slotsync explain', stream, key))}</p>`;
  const body = view.session
    ? html`<form method="post" action="${pathOf('records', stream, key)}">${formToken(view)}<p>This reads the row, and asks the service with one or two requests of the quota.</p><button>Read mirror and service</button></form>`
    : html`${view.canSignIn ? html`<p>${link('/sign-in', 'Sign in')} to read mirror and service.</p>` : typed}`;
  return { id: 'sides', title: 'Mirror and service', body };
}

function showSides({ explained, at }: Shown, view: View): Section[] {
  const { row, object, problem, there, externalId, changes, stream, key } = explained;
  const columns = Object.entries(row ?? {}).map(([name, value]) => [name, formatValue(value)]);
  const again = html`<form method="post" action="${pathOf('records', stream, key)}">${formToken(view)}<button>Read again</button></form>`;
  return [
    {
      id: 'sides',
      title: `Read at ${formatTime(at, view.timeZone)}`,
      body: html`${facts([['Next', nextOfRecord(explained)]])}${
        object && changes.length > 0
          ? table(
              'What a write would change',
              ['field', 'at the service', 'becomes'],
              changes.map((change) => [change.field, formatValues(change.old), formatValues(change.new)]),
            )
          : object
            ? html`<p>A write would change nothing.</p>`
            : ''
      }${again}`,
    },
    {
      id: 'row',
      title: 'Row in the mirror',
      body: columns.length === 0 ? html`<p>None.</p>` : table('Columns', ['column', 'value'], columns),
    },
    {
      id: 'object',
      title: 'Object it becomes',
      body: object
        ? html`<p>${object.extId}, type ${object.typeId}</p>${fieldsTable('Fields it becomes', object.fields)}`
        : html`<p>None${problem === undefined ? '' : `: ${problem}`}.</p>`,
    },
    {
      id: 'there',
      title: 'At the service',
      body: there
        ? html`<p>Number ${String(there.id)}, ${there.active ? 'active' : 'inactive'}</p>${fieldsTable('Fields at the service', there.fields)}`
        : html`<p>${externalId === undefined ? 'Not looked up, because the row gives no external id.' : `No object has the external id ${externalId}.`}</p>`,
    },
  ];
}

const fieldsTable = (caption: string, fields: FoundObject['fields']): Html =>
  table(
    caption,
    ['field', 'values'],
    fields.map(({ fieldId, values }) => [fieldId, formatValues(values)]),
  );
