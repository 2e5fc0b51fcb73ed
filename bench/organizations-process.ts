// Workers of several organizations in one process: the queues and the limiter of the program, each organization with its own
// connections, and for the service and its answer a timer. Jobs are numbers of batches that no row stands behind.
import { setTimeout as sleep } from 'node:timers/promises';
import type { Job } from 'bullmq';
import { openLimiter } from '../src/destination/quota/open-limiter.js';
import type { Limiter } from '../src/destination/quota/limiter.js';
import { createLogger, type Logger } from '../src/process/logger.js';
import { openBullmq } from '../src/queue/bullmq.js';
import { QUEUES } from '../src/queue/jobs.js';
import { createProducer } from '../src/queue/producer.js';
import type { State } from '../src/state/database.js';
import { RATE } from './figures.js';
import { LATENCY_MS, type Order, type OrganizationOptions } from './organization-options.js';

/** Concurrencies of a worker: batches, incremental batches, runs. */
const AT_ONCE = { [QUEUES.batches]: 12, [QUEUES.incrementalBatches]: 4, [QUEUES.runs]: 4 };

const organizations = JSON.parse(process.env['ORGANIZATIONS'] ?? '[]') as OrganizationOptions[];
const log = createLogger('warn', undefined);
const opened: Awaited<ReturnType<typeof openOrganization>>[] = [];
for (const organization of organizations) opened.push(await openOrganization(organization, log));

process.on('message', (message: Order) => void carryOut(message));
process.once('disconnect', () => process.exit(0));
process.send?.('ready');

async function carryOut(message: Order): Promise<void> {
  if (message.order === 'tell') {
    const sent = Object.fromEntries(opened.map(({ name, sentAt }) => [name, sentAt]));
    process.send?.(sent);
    return;
  }
  for (const { fill } of opened) await fill(message.jobs);
  process.send?.('filled');
}

async function openOrganization({ name, redisUrl, stateUrl }: OrganizationOptions, log: Logger) {
  const store = redisUrl === undefined ? { postgresUrl: stateUrl } : { redisUrl };
  const key = `http://127.0.0.1 ${name}`;
  const { limiter } = await openLimiter({ redisUrl, stateUrl, key, rate: RATE, log });
  const bullmq = openBullmq(store, name, log);
  // Queues batches without asking the state.
  const producer = createProducer({ bullmq: async () => bullmq, state: {} as State });
  /** Milliseconds on a clock that all processes of this machine share. */
  const sentAt: number[] = [];
  const work = async (_job: Job) => send(limiter, sentAt);
  for (const [queue, concurrency] of Object.entries(AT_ONCE)) {
    const worker = bullmq.worker(queue as keyof typeof AT_ONCE, work, { concurrency });
    await worker.waitUntilReady();
    void worker.run();
  }
  return {
    name,
    sentAt,
    async fill(jobs: number): Promise<void> {
      const batches = Array.from({ length: jobs }, (_, index) => ({ id: index + 1, lane: 'backfill' }));
      await producer.enqueueBatches(batches);
    },
  };
}

async function send(limiter: Limiter, sentAt: number[]): Promise<void> {
  for (;;) {
    const slot = await limiter.take('backfill');
    if (!slot.usable()) {
      void slot.release();
      continue;
    }
    await sleep(LATENCY_MS / 2);
    sentAt.push(performance.timeOrigin + performance.now());
    await sleep(LATENCY_MS / 2);
    void slot.release();
    return;
  }
}
