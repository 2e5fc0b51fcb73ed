// Works runs without jobs while they have few batches: this process plans the run and applies its batches itself. The
// queue gets what fails, the batches of larger runs, and what is left when sending stops.
import { codeOf } from '../errors/errors.js';
import type { Logger } from '../process/logger.js';
import type { QueuedBatch } from '../state/runs/batches.js';
import { plannerOf } from '../state/runs/claim-planning.js';
import type { Attempt, Executor, OwnRun } from './executor.js';
import { ATTEMPTS, batchJobId, runJobId, type BatchJob } from './jobs.js';
import type { Producer } from './producer.js';

interface OwnRunsOptions extends Pick<Producer, 'enqueueRun' | 'enqueueBatches'> {
  executor: Executor;
  processId: string | undefined;
  log: Logger;
  /** Maximum number of batches that are worked without jobs. If a run has more, its batches go to the queue. */
  mostBatches: number;
  isSending: () => boolean;
}

/** Options for queueing a job after this process has already made an attempt. */
type Queueing = Parameters<Producer['enqueueRun']>[2];

export function createOwnRuns(options: OwnRunsOptions) {
  const { executor, enqueueRun, enqueueBatches, mostBatches, isSending, log } = options;
  const worked = new Set<Promise<void>>();
  /** Ids of the jobs that a sweep would create for the runs and batches that this process works now. */
  const inHand = new Set<string>();
  const newPlanner = () => plannerOf(options.processId);

  /** Runs `work` and keeps its job id in `inHand`, because a sweep may queue the same work as a job meanwhile. */
  async function inHandAs(jobId: string, work: () => Promise<void>): Promise<void> {
    inHand.add(jobId);
    await work().finally(() => inHand.delete(jobId));
  }

  async function workOwnRun(runId: number, runLane: string, own: OwnRun): Promise<void> {
    let next: QueuedBatch[] = [];
    let data: Pick<BatchJob, 'traceparent'> = {};
    const attempt = firstAttempt(`run ${runId}`, {
      enqueue: (queueing) => enqueueRun(runId, runLane, queueing),
      goOn: (batches, traced) => void ([next, data] = [batches, traced]),
    });
    const token = ('taken' in own && own.taken.planner) || newPlanner();
    await inHandAs(runJobId(runId), () => executor.plan(runId, token, attempt, own));
    await workBatches(next, runId, data);
  }

  async function workBatches(
    batches: readonly QueuedBatch[],
    runId: number,
    data: Pick<BatchJob, 'traceparent'>,
  ): Promise<void> {
    if (batches.length > mostBatches || !isSending()) return enqueueBatches(batches, data);
    const works = batches.map((batch) => workBatch(batch, runId, data));
    const failed = (await Promise.allSettled(works)).find((result) => result.status === 'rejected');
    if (failed) throw failed.reason;
  }

  async function workBatch(
    { id, lane }: QueuedBatch,
    runId: number,
    data: Pick<BatchJob, 'traceparent'>,
  ): Promise<void> {
    let next: QueuedBatch[] = [];
    const attempt = firstAttempt(`run ${runId} ${id}`, {
      enqueue: (queueing, noted) => enqueueBatches([{ id, lane }], { ...data, ...noted }, queueing),
      goOn: (batches) => void (next = batches),
    });
    await inHandAs(batchJobId(id), () => executor.apply({ batchId: id, ...data }, attempt));
    await workBatches(next, runId, data);
  }

  return {
    /** Returns a token with which this process claims a run as its planner. */
    newPlanner,
    count: () => worked.size,
    isInHand: (jobId: string) => inHand.has(jobId),
    /** Resolves when this process works no run any more. */
    ended: () => Promise.all(worked),

    /**
     * Works a run. Resolves to true when the run has ended or its rest is in the queue. Resolves to false if queueing
     * failed: the next sweep queues the run from its row.
     */
    async work(runId: number, lane: string, own: OwnRun): Promise<boolean> {
      let isLeft = false;
      const work = workOwnRun(runId, lane, own).catch((error: unknown) => {
        isLeft = true;
        log.warn({ runId, code: codeOf(error) }, 'run left to the next sweep');
      });
      worked.add(work);
      await work.finally(() => worked.delete(work));
      return !isLeft;
    },
  };
}

/** Returns the first attempt at work that has no job yet. The work is queued as a job if the attempt fails. */
function firstAttempt(
  name: string,
  {
    enqueue,
    goOn,
  }: {
    enqueue: (queueing: Queueing, noted: Pick<BatchJob, 'earlier'>) => Promise<void>;
    goOn: (...next: Parameters<Attempt['goOn']>) => void;
  },
): Attempt {
  const noted: Pick<BatchJob, 'earlier'> = {};
  return {
    name,
    attemptsMade: 0,
    hasFewBatches: true,
    note: async (earlier) => void (noted.earlier = earlier),
    again: (delay, error) =>
      enqueue({ delay, attempts: error === undefined ? ATTEMPTS : ATTEMPTS - 1 }, noted),
    goOn: async (...next) => goOn(...next),
  };
}
