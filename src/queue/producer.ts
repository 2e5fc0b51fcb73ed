// Queues the rows of runs and batches. The row is written first and is authoritative: a lost job is queued again from it.
import type { JobsOptions } from 'bullmq';
import type { State } from '../state/database.js';
import { advanceRun } from '../state/runs/advance-run.js';
import { listQueuedBatches, type QueuedBatch } from '../state/runs/batches.js';
import { listUnfinishedRuns, onlyReads, type Run } from '../state/runs/read-runs.js';
import { adoptRuns, endLeftRuns } from '../state/runs/run-configuration.js';
import type { Fingerprints } from '../streams/fingerprints.js';
import type { Bullmq } from './bullmq.js';
import { batchJobId, JOB_OPTIONS, priorityOf, QUEUES, runJobId, type BatchJob, type RunJob } from './jobs.js';

export type Producer = ReturnType<typeof createProducer>;

/** Jobs added in one call. */
const AT_ONCE = 500;

const UNFINISHED = ['waiting', 'prioritized', 'active', 'delayed'] as const;

interface ProducerDeps {
  bullmq: Bullmq;
  state: State;
  /** Runs of this configuration are queued, and no others. */
  fingerprints?: Fingerprints;
}

export function createProducer({ bullmq, state, fingerprints }: ProducerDeps) {
  const runs = bullmq.queue(QUEUES.runs);
  const batches = bullmq.queue(QUEUES.batches);
  const incremental = bullmq.queue(QUEUES.incrementalBatches);
  /** The queued batches of each queue. */
  const perQueue = <T extends { lane: string }>(queued: readonly T[]) =>
    [
      { queue: batches, own: queued.filter(({ lane }) => lane !== 'incremental') },
      { queue: incremental, own: queued.filter(({ lane }) => lane === 'incremental') },
    ] as const;

  const isOwn = ({ configuration }: Pick<Run, 'configuration'>) =>
    configuration === (fingerprints?.configuration ?? null);

  /** `options`: what an attempt without a job has left of it. */
  async function enqueueRun(runId: number, lane: string, options: JobsOptions = {}): Promise<void> {
    const data: RunJob = { runId };
    const jobId = runJobId(runId);
    await runs.add('plan', data, { ...JOB_OPTIONS, ...options, jobId, priority: priorityOf(lane) });
  }

  /** Adding what is in the queue already changes nothing. `data`: what their jobs carry beside their numbers. */
  async function enqueueBatches(
    queued: readonly QueuedBatch[],
    data: Omit<BatchJob, 'batchId'> = {},
    options: JobsOptions = {},
  ): Promise<void> {
    for (const { queue, own } of perQueue(queued)) {
      for (let at = 0; at < own.length; at += AT_ONCE) {
        await queue.addBulk(
          own.slice(at, at + AT_ONCE).map(({ id, lane }) => ({
            name: 'apply',
            data: { batchId: id, ...data } satisfies BatchJob,
            opts: { ...JOB_OPTIONS, ...options, jobId: batchJobId(id), priority: priorityOf(lane) },
          })),
        );
      }
    }
  }

  return {
    enqueueRun,
    enqueueBatches,
    /** Whether a run, or a batch of it, belongs to the configuration of this process. */
    isOwn,

    /**
     * Lets every unfinished run of this configuration take its next step, if it is time, and queues what a process that ended,
     * or whose clock was wrong, has left out. Returns the runs of other configurations.
     */
    async requeue(): Promise<Run[]> {
      await bullmq.correctTimes([runs, batches, incremental], state.db);
      if ((await listUnfinishedRuns(state.db)).length === 0) return [];
      if (fingerprints) {
        await adoptRuns(state.db, fingerprints);
        await endLeftRuns(state.db, fingerprints, 'incremental');
      }
      const unfinished = await listUnfinishedRuns(state.db);
      for (const run of unfinished.filter(isOwn)) {
        if (run.status === 'planning' && run.pausedAt === null) await enqueueRun(run.id, run.lane);
        if (run.status === 'running') await advanceRun(state.db, run.id);
      }
      const queued = (await listQueuedBatches(state.db)).filter(isOwn);
      for (const { queue, own } of perQueue(queued))
        if (own.length > 0 && (await queue.getJobCountByTypes(...UNFINISHED)) < own.length)
          await enqueueBatches(own);
      return unfinished.filter((run) => !isOwn(run) && !onlyReads(run));
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
