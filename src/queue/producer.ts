// Puts rows into the queue. The row comes first and is the truth; a job that is lost is queued again from it.
import { listQueuedBatches } from '../state/batches.js';
import type { State } from '../state/database.js';
import { listUnfinishedRuns } from '../state/runs.js';
import type { Backend } from './backend.js';
import {
  BATCHES,
  batchJobId,
  JOB_OPTIONS,
  priorityOf,
  RUNS,
  runJobId,
  type BatchJob,
  type RunJob,
} from './jobs.js';

export type Producer = ReturnType<typeof createProducer>;

/** Jobs added in one call. */
const AT_ONCE = 500;

export function createProducer({ backend, state }: { backend: Backend; state: State }) {
  const runs = backend.queue(RUNS);
  const batches = backend.queue(BATCHES);

  async function enqueueRun(runId: number, lane: string): Promise<void> {
    const data: RunJob = { runId };
    await runs.add('plan', data, { ...JOB_OPTIONS, jobId: runJobId(runId), priority: priorityOf(lane) });
  }

  async function enqueueBatches(ids: readonly number[], lane: string): Promise<void> {
    for (let at = 0; at < ids.length; at += AT_ONCE) {
      await batches.addBulk(
        ids.slice(at, at + AT_ONCE).map((batchId) => ({
          name: 'apply',
          data: { batchId } satisfies BatchJob,
          opts: { ...JOB_OPTIONS, jobId: batchJobId(batchId), priority: priorityOf(lane) },
        })),
      );
    }
  }

  return {
    enqueueRun,
    enqueueBatches,

    /** Queues again whatever the state says should be queued and is not. Adding what is there changes nothing. */
    async requeue(): Promise<void> {
      for (const run of await listUnfinishedRuns(state.db)) {
        if (run.status === 'planning') await enqueueRun(run.id, run.lane);
      }
      const open = await listQueuedBatches(state.db);
      const counts = await batches.getJobCounts('waiting', 'prioritized', 'active', 'delayed');
      const queued = Object.values(counts).reduce((sum, count) => sum + count, 0);
      if (queued >= open.length) return;
      for (const lane of new Set(open.map((batch) => batch.lane))) {
        await enqueueBatches(
          open.filter((batch) => batch.lane === lane).map(({ id }) => id),
          lane,
        );
      }
    },

    /** Jobs waiting and in work, for `status`. */
    async depth(): Promise<Record<string, number>> {
      return batches.getJobCounts('waiting', 'prioritized', 'active', 'delayed');
    },

    async close(): Promise<void> {
      await Promise.all([runs.close(), batches.close()]);
    },
  };
}
