// Queues the rows of runs and batches as jobs. A row is written before its job and is authoritative: a lost job is
// queued again from its row.
import type { JobsOptions, Queue } from 'bullmq';
import type { State } from '../state/database.js';
import { advanceRun } from '../state/runs/advance-run.js';
import { listQueuedBatches, type QueuedBatch } from '../state/runs/batches.js';
import { listPlannedElsewhere } from '../state/runs/claim-planning.js';
import { listUnfinishedRuns, onlyReads, type Run } from '../state/runs/read-runs.js';
import { adoptRuns, endLeftRuns } from '../state/runs/start-run.js';
import type { Fingerprints } from '../streams/fingerprints.js';
import type { Bullmq } from './bullmq.js';
import {
  batchJobId,
  JOB_OPTIONS,
  priorityOf,
  QUEUES,
  runJobId,
  type BatchJob,
  type QueueName,
  type RunJob,
} from './jobs.js';

export type Producer = ReturnType<typeof createProducer>;

/** Maximum number of jobs that are added in one call. */
const AT_ONCE = 500;

/** Queues whose jobs slotsync creates; other programs create the jobs of the queue of changes. */
const OWN_QUEUES = [QUEUES.runs, QUEUES.batches, QUEUES.incrementalBatches] as const;
const UNFINISHED = ['waiting', 'prioritized', 'active', 'delayed'] as const;

interface ProducerDeps {
  /** Opens BullMQ at first use, because a small run needs no jobs. */
  bullmq: () => Promise<Bullmq>;
  state: State;
  /** Fingerprints of this configuration. Only runs of this configuration are queued. */
  fingerprints?: Fingerprints;
}

export function createProducer({ bullmq, state, fingerprints }: ProducerDeps) {
  const opened = new Map<QueueName, Queue>();
  async function queueOf(name: QueueName): Promise<Queue> {
    const { queue: open } = await bullmq();
    const queue = opened.get(name) ?? open(name);
    opened.set(name, queue);
    return queue;
  }
  /** Groups batches by the queue that they belong to. */
  const perQueue = <T extends { lane: string }>(queued: readonly T[]) =>
    [
      { name: QUEUES.batches, own: queued.filter(({ lane }) => lane !== 'incremental') },
      { name: QUEUES.incrementalBatches, own: queued.filter(({ lane }) => lane === 'incremental') },
    ] as const;

  const isOwn = ({ configuration }: Pick<Run, 'configuration'>) =>
    configuration === (fingerprints?.configuration ?? null);

  /** Queues a run for planning. `options` replace job options if an attempt without a job was already made. */
  async function enqueueRun(runId: number, lane: string, options: JobsOptions = {}): Promise<void> {
    const data: RunJob = { runId };
    const jobId = runJobId(runId);
    const queue = await queueOf(QUEUES.runs);
    await queue.add('plan', data, {
      ...JOB_OPTIONS,
      ...options,
      jobId,
      priority: priorityOf(lane),
    });
  }

  /** Queues batches as jobs. A batch that is queued already is unchanged. `data` is added to the data of each job. */
  async function enqueueBatches(
    queued: readonly QueuedBatch[],
    data: Omit<BatchJob, 'batchId'> = {},
    options: JobsOptions = {},
  ): Promise<void> {
    for (const { name, own } of perQueue(queued)) {
      if (own.length === 0) continue;
      const queue = await queueOf(name);
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
    /** Returns true if a run or batch belongs to the configuration of this process. */
    isOwn,

    /**
     * Lets every unfinished run of this configuration take its next step if possible. Queues what an ended process, or
     * a process with a wrong clock, has left out. Skips runs that a live process other than `processId` plans without a
     * job. Returns the runs of other configurations.
     */
    async requeue(processId = ''): Promise<Run[]> {
      await (await bullmq()).correctTimes(await Promise.all(OWN_QUEUES.map(queueOf)), state.db);
      if ((await listUnfinishedRuns(state.db)).length === 0) return [];
      if (fingerprints) {
        await adoptRuns(state.db, fingerprints);
        await endLeftRuns(state.db, fingerprints, 'incremental');
      }
      const unfinished = await listUnfinishedRuns(state.db);
      const planned = await listPlannedElsewhere(state.db, processId);
      for (const run of unfinished.filter(isOwn)) {
        if (run.status === 'planning' && run.pausedAt === null && !planned.has(run.id))
          await enqueueRun(run.id, run.lane);
        if (run.status === 'running') await advanceRun(state.db, run.id);
      }
      const queued = (await listQueuedBatches(state.db)).filter(isOwn);
      for (const { name, own } of perQueue(queued))
        if (own.length > 0 && (await (await queueOf(name)).getJobCountByTypes(...UNFINISHED)) < own.length)
          await enqueueBatches(own);
      return unfinished.filter((run) => !isOwn(run) && !onlyReads(run));
    },

    /** Returns the number of unfinished batch jobs by state, for `status`. */
    async depth(): Promise<Record<string, number>> {
      const [first = {}, second = {}] = await Promise.all(
        [QUEUES.batches, QUEUES.incrementalBatches].map(async (name) =>
          (await queueOf(name)).getJobCounts(...UNFINISHED),
        ),
      );
      return Object.fromEntries(UNFINISHED.map((kind) => [kind, (first[kind] ?? 0) + (second[kind] ?? 0)]));
    },

    async close(): Promise<void> {
      await Promise.all([...opened.values()].map((queue) => queue.close()));
    },
  };
}
