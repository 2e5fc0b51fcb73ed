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

type Noted = Pick<BatchJob, 'earlier'>;

/** A job that is not in the queue. `enqueue` puts the job there, with the findings of the attempt that failed. */
interface UnqueuedJob {
  jobId: string;
  name: string;
  enqueue(queueing: Queueing, noted: Noted): Promise<void>;
}

/** The batches that follow an attempt, and the data of their jobs. */
interface Next {
  batches: readonly QueuedBatch[];
  data: Pick<BatchJob, 'traceparent'>;
}

export function createOwnRuns(options: OwnRunsOptions) {
  const { executor, enqueueRun, enqueueBatches, mostBatches, isSending, log } = options;
  const worked = new Set<Promise<void>>();
  /** Ids of the jobs that a sweep would create for the runs and batches that this process works now. */
  const inHand = new Set<string>();
  const newPlanner = () => plannerOf(options.processId);

  /**
   * Makes the first attempt at the work of a job. The job is queued only if the attempt fails. Returns the batches that
   * follow. The periodic search for unqueued batches may queue the job meanwhile, so `inHand` contains its id until the
   * attempt has ended.
   */
  async function attemptFirst(
    { jobId, name, enqueue }: UnqueuedJob,
    work: (attempt: Attempt) => Promise<void>,
  ): Promise<Next> {
    const noted: Noted = {};
    let next: Next = { batches: [], data: {} };
    inHand.add(jobId);
    await work({
      name,
      attemptsMade: 0,
      hasFewBatches: true,
      note: async (earlier) => void (noted.earlier = earlier),
      again: (delay, error) =>
        enqueue({ delay, attempts: error === undefined ? ATTEMPTS : ATTEMPTS - 1 }, noted),
      goOn: async (batches, data) => void (next = { batches, data }),
    }).finally(() => inHand.delete(jobId));
    return next;
  }

  async function workOwnRun(runId: number, runLane: string, own: OwnRun): Promise<void> {
    const enqueue = (queueing: Queueing) => enqueueRun(runId, runLane, queueing);
    const token = ('taken' in own && own.taken.planner) || newPlanner();
    const job = { jobId: runJobId(runId), name: `run ${runId}`, enqueue };
    await workBatches(runId, await attemptFirst(job, (attempt) => executor.plan(runId, token, attempt, own)));
  }

  async function workBatches(runId: number, { batches, data }: Next): Promise<void> {
    if (batches.length > mostBatches || !isSending()) return enqueueBatches(batches, data);
    const works = batches.map(async ({ id, lane }) => {
      const enqueue = (queueing: Queueing, noted: Noted) =>
        enqueueBatches([{ id, lane }], { ...data, ...noted }, queueing);
      const job = { jobId: batchJobId(id), name: `run ${runId} ${id}`, enqueue };
      const apply = (attempt: Attempt) => executor.apply({ batchId: id, ...data }, attempt);
      await workBatches(runId, await attemptFirst(job, apply));
    });
    const failed = (await Promise.allSettled(works)).find((result) => result.status === 'rejected');
    if (failed) throw failed.reason;
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
        log.warn({ runId, code: codeOf(error) }, 'queueing the run failed; the next sweep queues it');
      });
      worked.add(work);
      await work.finally(() => worked.delete(work));
      return !isLeft;
    },
  };
}
