// Works runs of this process without jobs, as long as they have few batches: it plans such a run and applies its batches itself. The queue
// gets what fails, what is more, and what is left when sending stops.
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
  /** More batches of a run go to the queue. */
  mostBatches: number;
  isSending: () => boolean;
}

/** How a job is queued of which this process has made an attempt. */
type Queueing = Parameters<Producer['enqueueRun']>[2];

export function createOwnRuns(options: OwnRunsOptions) {
  const { executor, enqueueRun, enqueueBatches, mostBatches, isSending, log } = options;
  const worked = new Set<Promise<void>>();
  /** Ids of the jobs that a sweep would make of what is worked here. */
  const inHand = new Set<string>();
  const newPlanner = () => plannerOf(options.processId);

  /** Does the work of a job that a sweep may have made meanwhile. */
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
    /** A token to plan such a run with. */
    newPlanner,
    /** Runs that are worked now. */
    count: () => worked.size,
    isInHand: (jobId: string) => inHand.has(jobId),
    /** Resolves when none is worked any more. */
    ended: () => Promise.all(worked),

    /**
     * Works a run. Resolves with whether the rest of it is in the queue, or it has ended. False: it is a row all the same, and the next
     * sweep queues it.
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

/** The first attempt at what has no job yet: it gets one when this has failed. */
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
