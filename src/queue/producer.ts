// Queues the rows of runs and batches. The row is written first and is authoritative: a lost job is queued again from it.
import type { Queue } from 'bullmq';
import { listQueuedBatches } from '../state/runs/batches.js';
import type { State } from '../state/database.js';
import { advanceRun, listUnfinishedRuns } from '../state/runs/runs.js';
import type { Bullmq } from './bullmq.js';
import { batchJobId, JOB_OPTIONS, priorityOf, QUEUES, runJobId, type BatchJob, type RunJob } from './jobs.js';

export type Producer = ReturnType<typeof createProducer>;

/** Jobs added in one call. */
const AT_ONCE = 500;

const UNFINISHED = ['waiting', 'prioritized', 'active', 'delayed'] as const;

async function countJobs(queue: Queue): Promise<number> {
  const counts = await queue.getJobCounts(...UNFINISHED);
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}

export function createProducer({ bullmq, state }: { bullmq: Bullmq; state: State }) {
  const runs = bullmq.queue(QUEUES.runs);
  const batches = bullmq.queue(QUEUES.batches);
  const incremental = bullmq.queue(QUEUES.incrementalBatches);
  const queueOf = (lane: string) => (lane === 'incremental' ? incremental : batches);

  async function enqueueRun(runId: number, lane: string): Promise<void> {
    const data: RunJob = { runId };
    await runs.add('plan', data, { ...JOB_OPTIONS, jobId: runJobId(runId), priority: priorityOf(lane) });
  }

  async function enqueueBatches(ids: readonly number[], lane: string): Promise<void> {
    for (let at = 0; at < ids.length; at += AT_ONCE) {
      await queueOf(lane).addBulk(
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
        if (run.status === 'planning' && run.pausedAt === null) await enqueueRun(run.id, run.lane);
        // Whoever finished its last batch may have died before saying so.
        if (run.status === 'running') await advanceRun(state.db, run.id);
      }
      const open = await listQueuedBatches(state.db);
      for (const queue of [batches, incremental]) {
        const missing = open.filter(({ lane }) => queueOf(lane) === queue);
        if ((await countJobs(queue)) >= missing.length) continue;
        for (const lane of new Set(missing.map((batch) => batch.lane))) {
          const ids = missing.filter((batch) => batch.lane === lane).map(({ id }) => id);
          await enqueueBatches(ids, lane);
        }
      }
    },

    /** Batch jobs by state, for `status`. */
    async depth(): Promise<Record<string, number>> {
      const [first = {}, second = {}] = await Promise.all(
        [batches, incremental].map((queue) => queue.getJobCounts(...UNFINISHED)),
      );
      return Object.fromEntries(UNFINISHED.map((kind) => [kind, (first[kind] ?? 0) + (second[kind] ?? 0)]));
    },

    async close(): Promise<void> {
      await Promise.all([runs, batches, incremental].map((queue) => queue.close()));
    },
  };
}
