// The actions of operators.
import { actionsDocument } from '../documents/actions.js';
import { listActions } from '../state/actions.js';
import { renderDocument } from './render-document.js';
import type { Page } from './view.js';

const MOST_ACTIONS = 100;

export const actionsPage: Page = async (sources, { address }) => {
  const actions = await sources.read(address, (db) => listActions(db, { limit: MOST_ACTIONS }));
  return (view) => renderDocument(actionsDocument(actions), view);
};
