// The alarm clock. BullMQ rings at the schedule's moments, in one of the processes that drain the queue; what a ring
// means is decided by the schedule's row, which is also looked at now and then, so that an alarm that is lost or late
// loses no night.
import { codeOf } from '../errors.js';
import type { Schedule } from '../cron-schedule.js';
import { readSchedule, registerSchedule, removeSchedule } from '../state/runs/occurrences.js';
import { NIGHTLY } from '../state/runs/schedule-names.js';
import { skipMissedOccurrences, startDueNightly, type NightlyDeps } from '../sync/start-nightly.js';
import type { Backend } from './bullmq.js';
import { JOB_OPTIONS, RUNS, TICK } from './jobs.js';
import type { Producer } from './producer.js';

export interface SchedulerOptions extends NightlyDeps {
  backend: Backend;
  producer: Producer;
}

export type Scheduler = ReturnType<typeof createScheduler>;

const LOOK_EVERY_MS = 15_000;

export function createScheduler({ backend, producer, ...deps }: SchedulerOptions) {
  const { state, log } = deps;
  const queue = backend.queue(RUNS);
  let look: NodeJS.Timeout | undefined;

  /** Starts and queues what is due. */
  async function wake(): Promise<void> {
    for (const run of await startDueNightly(deps)) await producer.enqueueRun(run.id, run.lane);
  }

  /** Sets BullMQ's alarm as the row says. */
  async function setAlarm(): Promise<void> {
    const schedule = await readSchedule(state.db, NIGHTLY);
    const alarm = await queue.getJobScheduler(NIGHTLY);
    const isSet = (as: typeof alarm) => as?.pattern === schedule?.pattern && as?.tz === schedule?.timezone;
    if (!schedule) {
      if (alarm) await queue.removeJobScheduler(NIGHTLY);
      return;
    }
    const { pattern, timezone } = schedule;
    if (isSet(alarm)) return;
    try {
      await queue.upsertJobScheduler(
        NIGHTLY,
        { pattern, tz: timezone },
        { name: TICK, data: {}, opts: JOB_OPTIONS },
      );
    } catch (error) {
      // Workers that start together set it together, and the queue refuses all but one.
      if (!isSet(await queue.getJobScheduler(NIGHTLY))) throw error;
    }
  }

  return {
    wake,
    setAlarm,

    /**
     * Makes the state and the alarm follow the configuration, and makes up for a night that was missed, or passes it
     * over. From then on looks after both until closed.
     */
    async start(configured: (Schedule & { catchUp: boolean }) | undefined): Promise<void> {
      if (configured) await registerSchedule(state.db, NIGHTLY, configured);
      else await removeSchedule(state.db, NIGHTLY);
      await setAlarm();
      if (configured && !configured.catchUp) await skipMissedOccurrences(deps);
      await wake();
      look = setInterval(() => {
        wake()
          .then(setAlarm)
          .catch((error: unknown) =>
            log.warn({ code: codeOf(error) }, 'the schedule could not be looked at'),
          );
      }, LOOK_EVERY_MS);
      look.unref();
    },

    async close(): Promise<void> {
      clearInterval(look);
      await queue.close();
    },
  };
}
