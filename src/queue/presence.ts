// Tells the state that this process is at work, whether it sends, and which configuration it has: whoever looks, looks from
// another process.
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
/** Processes that were started together see each other so soon. */
const FIRST_RENEWAL_MS = 1000;

interface PresenceDeps {
  state: State;
  log: Logger;
  /** `worker`, or the command that works the queue. */
  command: string;
  configuration?: ProcessConfiguration & { isChanged: () => Promise<boolean> };
  quota?: {
    requestsPerSecond: number;
    findPlace: () => Promise<QuotaPlace>;
    /** Hears of the other processes at each renewal. */
    sees: (pool: Pool) => void;
  };
}

export type Presence = Awaited<ReturnType<typeof startPresence>>;

/**
 * Notes this process in the state until it is closed; it is noted when this resolves. While the state does not answer, others
 * take it for dead.
 */
export async function startPresence({ state, log, command, configuration, quota }: PresenceDeps) {
  const { requestsPerSecond = null } = quota ?? {};
  const id = randomUUID().slice(-12);
  const process_ = { id, command, host: hostname(), pid: process.pid, requestsPerSecond };
  let place: QuotaPlace | undefined;
  let others = 0;
  let onSeen: (() => void) | undefined;
  const closing = new AbortController();
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
  /** In one transaction: what was found out must not be forgotten when it cannot be noted. */
  const noteRestored = () =>
    state.db.transaction(async (tx) => {
      log.error('the state has forgotten what this process noted: it was put back');
      await noteDatabase(tx, 'state', readStateFacts);
      await markRestored(tx, 'state', 'was put back to an earlier time while a process was at work');
      return (await notePresence(tx, process_, stopped, { configuration, isChanged })).notedAt ?? undefined;
    });
  notedAt = await note();
  const renewal = repeat(renew, {
    everyMs: RENEW_PROCESS_MS,
    firstAfterMs: FIRST_RENEWAL_MS,
    signal: closing.signal,
    onError: (error) => log.debug({ code: codeOf(error) }, 'process not noted in the state; it is retried'),
  });
  // Here, because processes are killed and alerts begin and end also while no run can be planned.
  const pruning = repeat(() => pruneNotes(state.db), {
    everyMs: PRUNE_EVERY_MS,
    signal: closing.signal,
    onError: (error) => log.debug({ code: codeOf(error) }, 'old notes not deleted; it is retried'),
  });

  async function renew(): Promise<void> {
    const wasChanged = isChanged;
    isChanged = (await configuration?.isChanged()) ?? false;
    if (isChanged && !wasChanged)
      log.warn('configuration changed on disk: this process goes on with the one it has loaded; restart it');
    if (wasChanged && !isChanged) log.info('configuration on disk is again the one that was loaded');
    notedAt = await note();
    const now = await quota?.findPlace();
    if (now && place && now.id !== place.id) await moveQuotaPlace(state.db, place.id, now);
    place = now;
  }

  return {
    /** Names the process in the state; claims of its batches begin with it. */
    id: process_.id,

    /** Processes that send, this one included. */
    processes: () => others + 1,
    /** `listener` is called whenever the processes were counted. */
    whenSeen(listener: () => void): void {
      onSeen = listener;
    },

    /** Since when it sends nothing, and why; null: it sends. */
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
      closing.abort();
      await Promise.all([renewal.ended, pruning.ended]);
      await removeProcess(state.db, process_.id);
    },
  };
}
