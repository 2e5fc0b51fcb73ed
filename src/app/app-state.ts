// Opens the state database for a command, and confirms whose state it is.
import { codeOf, UsageError } from '../errors/errors.js';
import { once } from '../process/lifecycle.js';
import type { ApiSettings, Settings } from '../config/settings.js';
import { openState, type State } from '../state/database.js';
import { noteDatabase, readStateFacts } from '../state/restored-databases.js';
import { bindDestination, confirmDestination } from '../state/destination-binding.js';
import { requireMigrated } from '../state/migrate.js';
import { requireWriter } from '../state/state-role.js';

interface AppStateOptions {
  settings: Settings;
  /** A state that is open already. */
  given: State | undefined;
  /** Closes what it is given with the app. */
  own: <T>(part: T, close: () => Promise<unknown>) => T;
  /** Called before the connection closes. */
  beforeClose: () => Promise<void>;
}

export type AppState = ReturnType<typeof createAppState>;

export function createAppState({ settings, given, own, beforeClose }: AppStateOptions) {
  const stateUrl = () => required(settings.stateUrl, 'STATE_DATABASE_URL');
  const api = (): ApiSettings => required(settings.api, 'API_BASE_URL');

  const connection = once(async () => {
    const opened = openState({ url: stateUrl(), statementSeconds: settings.stateStatementSeconds });
    return own(opened, async () => {
      await beforeClose();
      await opened.close();
    });
  });
  let openedState: State | undefined;
  const state = once(async (): Promise<State> => {
    if (given) return (openedState = given);
    const opened = await connection();
    await requireMigrated(opened).catch(explainRights);
    return (openedState = opened);
  });

  /** The state, with the destination of the settings noted in it, or confirmed; and the state's id. */
  const bound = once(async () => {
    const opened = await state();
    return { state: opened, stateId: await bindDestination(opened, api()) };
  });
  /** The same, looked at whether it is the database that it was. */
  const recognized = once(async () => {
    const { db } = await state();
    const [opened] = await Promise.all([bound(), noteDatabase(db, 'state', readStateFacts)]);
    return opened;
  });

  /** Throws the error: one of a missing right with what the role may do. */
  async function explainRights(error: unknown): Promise<never> {
    if (codeOf(error) === 'state_rights') await requireWriter(given ?? (await connection()));
    throw error;
  }

  return {
    stateUrl,
    api,
    state,
    /** The state if it is open. */
    openedState: () => openedState,
    bound,
    recognized,
    explainRights,

    /** Refuses a state that belongs to another destination, without binding a new one. */
    async confirmedState(): Promise<State> {
      const opened = await state();
      await confirmDestination(opened, api());
      return opened;
    },
  };
}

export function required<T>(value: T | undefined, setting: string): T {
  if (value === undefined) throw new UsageError(`${setting} is not set`);
  return value;
}
