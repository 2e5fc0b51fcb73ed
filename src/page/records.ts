// A record: the facts of the state, and, when somebody asks for it, its row and its object. And the search for it.
import { addressOfRecord, linkToRecord, text } from '../documents/document.js';
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
import { sidesSection, type Shown } from './sides.js';
import { PageNotFound, type Page } from './view.js';

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
  const path = addressOfRecord(stream, key);
  const offer = { path, command: commandFor('slotsync explain', stream, key), about: `${stream} ${key}` };
  return (view) => {
    const shown = view.session?.shown.get(path) as Shown<RecordExplained> | undefined;
    const document = recordDocument(known, shown?.explained);
    const sections = [...document.sections, sidesSection(offer, shown, view)];
    return renderDocument({ ...document, sections }, view);
  };
};
