import type { App } from '../app.js';
import { QUEUES } from '../queue/jobs.js';
import { queueAddress } from '../queue/queue-address.js';
import { printJson, printLine } from '../report/print.js';
import { readRecordCounts, readStatus, type RecordCounts } from '../readings/status.js';
import { describeStatus, statusToJson } from '../report/status.js';
import { LISTED_KINDS } from '../state/runs/read-runs.js';
import { RUN_KINDS } from '../state/schema.js';
import type { CommonOptions } from './command.js';
import { readWholeNumber } from './work-run.js';

interface StatusOptions extends CommonOptions {
  all?: boolean;
  /** Seconds, if given. */
  watch?: string | true;
}

/** Of the time, how much is spent counting all records, at most. */
const COUNTING_SHARE = 1 / 20;

export async function status(app: App, options: StatusOptions): Promise<void> {
  if (options.watch !== undefined) return watchStatus(app, options.watch, options);
  const reading = await readStatus(await app.state(), readingsOf(app, options));
  const { binding } = reading;
  const queue = binding && queueAddress(app.queueStore(), QUEUES.changes, binding.stateId);
  if (options.json) return printJson(statusToJson(reading, queue ?? null));
  for (const line of describeStatus(reading, await app.timeZone())) printLine(line);
}

async function watchStatus(app: App, every: string | true, options: StatusOptions): Promise<void> {
  const { requireScreen, watch } = await import('./watch.js');
  const seconds = readWholeNumber(every === true ? '2' : every, '--watch takes', { unit: 'of seconds ' });
  requireScreen(options);
  const state = await app.state();
  const timeZone = await app.timeZone();
  let counted: { counts: RecordCounts; until: number } | undefined;
  const records = async () => {
    const startedAt = performance.now();
    if (counted && startedAt < counted.until) return counted.counts;
    const { configuredStreams } = readingsOf(app, options);
    const counts = await readRecordCounts(state.db, () => configuredStreams().catch(() => undefined));
    const now = performance.now();
    counted = { counts, until: now + (now - startedAt) / COUNTING_SHARE };
    return counts;
  };
  const read = async () => {
    const reading = await readStatus(state, { ...readingsOf(app, options), records });
    return () => describeStatus(reading, timeZone);
  };
  await watch(app, read, seconds);
}

function readingsOf(app: App, { all }: StatusOptions) {
  return {
    kinds: all ? RUN_KINDS : LISTED_KINDS,
    configuredStreams: async () => (await app.configuration()).streams.map(({ name }) => name),
    quotaUsage: app.quotaUsage,
  };
}
