// A record: the facts of the state, and, when somebody asks for it, its row and its object. And the search for it.
import { addressOfRecord, linkToRecord, text, type Section } from '../documents/document.js';
import { commandFor } from '../situation/commands.js';
import { recordDocument } from '../documents/record.js';
import { readChainOf } from '../situation/chains.js';
import { readDriftOf } from '../state/drift/read-drift.js';
import { readLinks } from '../state/records/links.js';
import { findRecords } from '../state/records/read/find-records.js';
import { countChangesOf, listBatchesOf, readRecord } from '../state/records/read/record-details.js';
import { listFormerObjects } from '../state/records/read/former-objects.js';
import type { RecordExplained } from '../sync/operator/explain-record.js';
import { renderDocument } from './render-document.js';
import { PageNotFound, type Page, type View } from './view.js';

const MOST_BATCHES = 20;
const MOST_FOUND = 50;

export const searchPage: Page = async (sources, { query, address }) => {
  const wanted = query.get('key')?.trim() ?? '';
  const found = await sources.read(address, (db) => findRecords(db, wanted, MOST_FOUND));
  const rows = found.map(({ stream, localKey, externalId, status }) => [
    linkToRecord(stream, localKey),
    externalId ?? '–',
    text`${{ status }}`,
  ]);
  const document = {
    title: 'Records',
    lead: [
      `Records whose key or external id is ${wanted}:`,
      ...(found.length === 0 ? ['None in the state.'] : []),
    ],
    sections: [
      { id: 'found', title: 'Found', tables: [{ headings: ['record', 'external id', 'status'], rows }] },
    ],
  };
  return (view) => renderDocument(document, view);
};

/** The reading of all three sides, and its time. */
export interface Shown {
  explained: RecordExplained;
  at: Date;
}

export const recordPage: Page = async (sources, { params, address }) => {
  const { stream = '', key = '' } = params;
  const known = await sources.read(address, async (db) => {
    const record = await readRecord(db, stream, key);
    return {
      stream,
      key,
      record,
      chain: await readChainOf(db, record),
      link: (await readLinks(db, stream, [key])).get(key),
      former: await listFormerObjects(db, stream, [key]),
      drift: await readDriftOf(db, { stream, localKey: key }),
      batches: await listBatchesOf(db, stream, key, MOST_BATCHES),
      waitingChanges: await countChangesOf(db, stream, key),
    };
  });
  if (!known.record && !known.link && !known.drift && known.batches.length === 0)
    throw new PageNotFound(`The state has no record '${key}' of ${stream}.`);
  return (view) => {
    const shown = view.session?.shown.get(addressOfRecord(stream, key)) as Shown | undefined;
    const document = recordDocument(known, shown?.explained);
    return renderDocument(
      { ...document, sections: [...document.sections, readSides({ stream, key }, shown, view)] },
      view,
    );
  };
};

/** Reading row and object costs requests, and shows the row: so only who signed in asks for it. */
function readSides(
  { stream, key }: { stream: string; key: string },
  shown: Shown | undefined,
  { session, canSignIn }: View,
): Section {
  const command = commandFor('slotsync explain', stream, key);
  const read = {
    command,
    href: addressOfRecord(stream, key),
    label: shown ? 'Read again' : 'Read mirror and service',
    about: `${stream} ${key}`,
    isImmediate: true,
  };
  const about = shown
    ? text`Row and object were read at ${shown.at}.`
    : 'This reads the row, and asks the service with one or two requests of the quota.';
  return {
    id: 'sides',
    title: 'Mirror and service',
    paragraphs: session
      ? []
      : [
          canSignIn
            ? text`${{ text: 'Sign in', href: '/sign-in' }} to read mirror and service.`
            : text`For the row and the object: ${{ command }}`,
        ],
    points: session ? [{ text: about, commands: [read] }] : [],
  };
}
