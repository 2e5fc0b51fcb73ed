// Starts the nightly sync when it is due. BullMQ triggers, in one of the processes that work the queue; the row of the
// schedule decides which occurrence is due. The row is polled too, so a trigger that is lost or late loses no sync.
import type { Schedule } from '../cron-schedule.js';
import { codeOf } from '../errors.js';
import { repeat } from '../lifecycle.js';
import { readSchedule, registerSchedule, removeSchedule } from '../state/runs/nightly-occurrences.js';
import { NIGHTLY } from '../state/runs/nightly-occurrences.js';
import { skipMissedOccurrences, startDueNightly, type NightlyDeps } from '../sync/start-due-nightly.js';
import type { Bullmq } from './bullmq.js';
import { JOB_OPTIONS, QUEUES, SCHEDULE_DUE } from './jobs.js';
import type { Producer } from './producer.js';

const POLL_EVERY_MS = 15_000;

export function createNightlyScheduler({
  bullmq,
  producer,
  ...deps
}: NightlyDeps & { bullmq: Bullmq; producer: Producer }) {
  const { state, log } = deps;
  const queue = bullmq.queue(QUEUES.runs);
  const closing = new AbortController();
  let polling: ReturnType<typeof repeat> | undefined;

  async function startDueRuns(): Promise<void> {
    for (const run of await startDueNightly(deps)) await producer.enqueueRun(run.id, run.lane);
  }

  /** Makes BullMQ's job scheduler follow the schedule's row. */
  async function registerJobScheduler(): Promise<void> {
    const schedule = await readSchedule(state.db, NIGHTLY);
    const registered = await queue.getJobScheduler(NIGHTLY);
    if (!schedule) {
      if (registered) await queue.removeJobScheduler(NIGHTLY);
      return;
    }
    const { pattern, timezone } = schedule;
    const isCurrent = (it: typeof registered) => it?.pattern === pattern && it.tz === timezone;
    if (isCurrent(registered)) return;
    const job = { name: SCHEDULE_DUE, data: {}, opts: JOB_OPTIONS };
    try {
      await queue.upsertJobScheduler(NIGHTLY, { pattern, tz: timezone }, job);
    } catch (error) {
      // Workers that start at the same time all register it, and the queue refuses all but one.
      if (!isCurrent(await queue.getJobScheduler(NIGHTLY))) throw error;
    }
  }

  return {
    startDueRuns,
    registerJobScheduler,

    /** Registers the configured schedule, starts or skips what was missed, and polls the schedule until closed. */
    async start(configured: (Schedule & { catchUp: boolean }) | undefined): Promise<void> {
      if (configured) await registerSchedule(state.db, NIGHTLY, configured);
      else await removeSchedule(state.db, NIGHTLY);
      await registerJobScheduler();
      if (configured && !configured.catchUp) await skipMissedOccurrences(deps);
      await startDueRuns();
      polling ??= repeat(() => startDueRuns().then(registerJobScheduler), {
        everyMs: POLL_EVERY_MS,
        firstAfterMs: POLL_EVERY_MS,
        signal: closing.signal,
        onError: (error) => log.warn({ code: codeOf(error) }, 'polling the schedule failed; it is retried'),
      });
    },

    async close(): Promise<void> {
      closing.abort();
      await Promise.all([queue.close(), polling?.ended]);
    },
  };
}
