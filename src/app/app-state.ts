// Opens the state database for a command, and confirms which destination the state belongs to.
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
  /** A state that is already open. It replaces the state that the settings name. */
  given: State | undefined;
  /** Registers how a part is closed when the app closes. */
  own: <T>(part: T, close: () => Promise<unknown>) => T;
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

  /** Returns the state and its id. Binds the state to the settings' destination, or confirms that binding. */
  const bound = once(async () => {
    const opened = await state();
    return { state: opened, stateId: await bindDestination(opened, api()) };
  });
  /** Returns the same as `bound`, and also checks whether the state is still the same database. */
  const recognized = once(async () => {
    const { db } = await state();
    const [opened] = await Promise.all([bound(), noteDatabase(db, 'state', readStateFacts)]);
    return opened;
  });

  /** Throws the error. If a right is missing, throws an error that names the role's rights instead. */
  async function explainRights(error: unknown): Promise<never> {
    if (codeOf(error) === 'state_rights') await requireWriter(given ?? (await connection()));
    throw error;
  }

  return {
    stateUrl,
    api,
    state,
    openedState: () => openedState,
    bound,
    recognized,
    explainRights,

    /** Returns the state. Throws if it belongs to another destination. Does not bind a new state. */
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
