// Registers this process in the state, with its configuration and whether it sends. Commands and workers in other
// processes read this from the state.
import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { codeOf, messageOf } from '../errors/errors.js';
import { repeat } from '../process/lifecycle.js';
import type { Logger } from '../process/logger.js';
import type { State } from '../state/database.js';
import { markRestored, noteDatabase, readStateFacts } from '../state/restored-databases.js';
import { moveQuotaPlace, type QuotaPlace } from '../state/destination-binding.js';
import {
  notePresence,
  removeProcess,
  RENEW_PROCESS_MS,
  type Pool,
  type ProcessConfiguration,
  type SendingStopped,
} from '../state/processes.js';
import { pruneNotes } from '../state/retention.js';

const PRUNE_EVERY_MS = 60 * 60 * 1000;
/** Delay of the first renewal, so that processes which were started together soon see each other. */
const FIRST_RENEWAL_MS = 1000;

interface PresenceDeps {
  state: State;
  log: Logger;
  /** `worker`, or the name of a command that works the queue. */
  command: string;
  configuration?: ProcessConfiguration & { isChanged: () => Promise<boolean> };
  quota?: {
    requestsPerSecond: number;
    findPlace: () => Promise<QuotaPlace>;
    /** Called with the other processes whenever this process renews its row. */
    sees: (pool: Pool) => void;
  };
}

export type Presence = Awaited<ReturnType<typeof startPresence>>;

/**
 * Registers this process in the state until it is closed. The process is registered when the promise resolves. While
 * the state does not answer, other processes assume that this process has ended.
 */
export async function startPresence({ state, log, command, configuration, quota }: PresenceDeps) {
  const { requestsPerSecond = null } = quota ?? {};
  const id = randomUUID().slice(-12);
  const process_ = { id, command, host: hostname(), pid: process.pid, requestsPerSecond };
  let place: QuotaPlace | undefined;
  let others = 0;
  let onSeen: (() => void) | undefined;
  let stopped: (SendingStopped & { since: Date }) | null = null;
  let isChanged = false;
  let notedAt: string | undefined;
  const note = async () => {
    const noted = await notePresence(state.db, process_, stopped, { configuration, isChanged, notedAt });
    others = noted.others;
    onSeen?.();
    quota?.sees(noted);
    return noted.isPutBack ? noteRestored() : noted.notedAt;
  };
  /** Records that the state was restored. One transaction: a noticed restore must not be lost if recording fails. */
  const noteRestored = () =>
    state.db.transaction(async (tx) => {
      log.error('state database was restored: it no longer has the heartbeat of this process');
      await noteDatabase(tx, 'state', readStateFacts);
      await markRestored(tx, 'state', 'was restored to an earlier time while a process was running');
      return (await notePresence(tx, process_, stopped, { configuration, isChanged })).notedAt ?? undefined;
    });
  notedAt = await note();
  const renewal = repeat(renew, {
    everyMs: RENEW_PROCESS_MS,
    firstAfterMs: FIRST_RENEWAL_MS,
    onError: (error) =>
      log.debug({ code: codeOf(error) }, 'heartbeat not written to the state; it is retried'),
  });
  // Deletes old rows here, because killed processes and ended alerts leave rows even while no run can be planned.
  const pruning = repeat(() => pruneNotes(state.db), {
    everyMs: PRUNE_EVERY_MS,
    onError: (error) =>
      log.debug({ code: codeOf(error) }, 'deleting old rows of the state failed; it is retried'),
  });

  async function renew(): Promise<void> {
    const wasChanged = isChanged;
    isChanged = (await configuration?.isChanged()) ?? false;
    if (isChanged && !wasChanged)
      log.warn('configuration file changed: this process still uses the version that it loaded; restart it');
    if (wasChanged && !isChanged)
      log.info('configuration file is again the version that this process loaded');
    notedAt = await note();
    const now = await quota?.findPlace();
    if (now && place && now.id !== place.id) await moveQuotaPlace(state.db, place.id, now);
    place = now;
  }

  return {
    /** Id of the process in the state. Claims of its batches begin with this id. */
    id: process_.id,

    /** Returns the number of processes that send, including this process. */
    processes: () => others + 1,
    /** Registers a listener that is called each time the sending processes were counted. */
    whenSeen(listener: () => void): void {
      onSeen = listener;
    },

    /** Returns since when and why this process sends nothing, or null if it sends. */
    stopped: () => stopped,

    sendingStopped(error: unknown): void {
      stopped = { since: new Date(), code: codeOf(error), message: messageOf(error) };
      renewal.wake();
    },

    sendingResumed(): void {
      stopped = null;
      renewal.wake();
    },

    async close(): Promise<void> {
      await Promise.all([renewal.end(), pruning.end()]);
      await removeProcess(state.db, process_.id);
    },
  };
}
