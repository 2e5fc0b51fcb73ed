// Objects that a verify saw to differ at the service from what was accepted last, and their repair.
import { driftDocument } from '../documents/drift.js';
import { listVerified } from '../situation/situation.js';
import { countDrift, listDrift } from '../state/drift/read-drift.js';
import { renderDocument } from './render-document.js';
import type { Page } from './view.js';

const MOST = 100;

export const driftPage: Page = async (sources, { address }) => {
  const verified = listVerified(await sources.now());
  const { counts, listed } = await sources.read(address, async (db) => ({
    counts: await countDrift(db),
    listed: await listDrift(db, MOST),
  }));
  return (view) => renderDocument(driftDocument(counts, verified, listed), view);
};
