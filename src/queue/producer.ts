// Queues the rows of runs and batches. The row is written first and is authoritative: a lost job is queued again from it.
import type { State } from '../state/database.js';
import { advanceRun } from '../state/runs/advance-run.js';
import { listQueuedBatches } from '../state/runs/batches.js';
import { listUnfinishedRuns } from '../state/runs/read-runs.js';
import type { Bullmq } from './bullmq.js';
import { batchJobId, JOB_OPTIONS, priorityOf, QUEUES, runJobId, type BatchJob, type RunJob } from './jobs.js';

export type Producer = ReturnType<typeof createProducer>;

/** Jobs added in one call. */
const AT_ONCE = 500;

const UNFINISHED = ['waiting', 'prioritized', 'active', 'delayed'] as const;

export function createProducer({ bullmq, state }: { bullmq: Bullmq; state: State }) {
  const runs = bullmq.queue(QUEUES.runs);
  const batches = bullmq.queue(QUEUES.batches);
  const incremental = bullmq.queue(QUEUES.incrementalBatches);
  /** The queued batches of each queue. */
  const perQueue = <T extends { lane: string }>(queued: readonly T[]) =>
    [
      { queue: batches, own: queued.filter(({ lane }) => lane !== 'incremental') },
      { queue: incremental, own: queued.filter(({ lane }) => lane === 'incremental') },
    ] as const;

  async function enqueueRun(runId: number, lane: string): Promise<void> {
    const data: RunJob = { runId };
    await runs.add('plan', data, { ...JOB_OPTIONS, jobId: runJobId(runId), priority: priorityOf(lane) });
  }

  /** Adding what is in the queue already changes nothing. */
  async function enqueueBatches(
    queued: readonly { id: number; lane: string }[],
    traceparent?: string,
  ): Promise<void> {
    const traced = traceparent === undefined ? {} : { traceparent };
    for (const { queue, own } of perQueue(queued)) {
      for (let at = 0; at < own.length; at += AT_ONCE) {
        await queue.addBulk(
          own.slice(at, at + AT_ONCE).map(({ id, lane }) => ({
            name: 'apply',
            data: { batchId: id, ...traced } satisfies BatchJob,
            opts: { ...JOB_OPTIONS, jobId: batchJobId(id), priority: priorityOf(lane) },
          })),
        );
      }
    }
  }

  return {
    enqueueRun,
    enqueueBatches,

    /**
     * Lets a run take its next step, if it is time, and queues the batches it may send then. `traceparent`: the span in which
     * it was planned.
     */
    async advance(runId: number, traceparent?: string): Promise<void> {
      if (!(await advanceRun(state.db, runId))) return;
      await enqueueBatches(await listQueuedBatches(state.db, runId), traceparent);
    },

    /** The same for every unfinished run: what a process that ended has left out. */
    async requeue(): Promise<void> {
      for (const run of await listUnfinishedRuns(state.db)) {
        if (run.status === 'planning' && run.pausedAt === null) await enqueueRun(run.id, run.lane);
        if (run.status === 'running') await advanceRun(state.db, run.id);
      }
      const queued = await listQueuedBatches(state.db);
      for (const { queue, own } of perQueue(queued))
        if ((await queue.getJobCountByTypes(...UNFINISHED)) < own.length) await enqueueBatches(own);
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
