// The text of `status` for a state.
import { statusToText } from '../../src/commands/status.js';
import { readSituation } from '../../src/situation/situation.js';
import type { State } from '../../src/state/database.js';

/** In UTC, without the quota. `streams`: those of the configuration. */
export async function statusOf({ db }: Pick<State, 'db'>, streams: readonly string[] = ['rooms']) {
  return statusToText({ ...(await readSituation(db, { streams })), quota: null }, 'UTC');
}
