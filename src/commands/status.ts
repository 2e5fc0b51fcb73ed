import type { App } from '../app.js';
import { QUEUES } from '../queue/jobs.js';
import { queueAddress } from '../queue/queue-address.js';
import { printJson } from '../report/print.js';
import { printStatus, readStatus, statusToJson } from '../report/status.js';
import { LISTED_KINDS } from '../state/runs/read-runs.js';
import { RUN_KINDS } from '../state/schema.js';
import type { CommonOptions } from './command.js';

export async function status(app: App, options: CommonOptions & { all?: boolean }): Promise<void> {
  const reading = await readStatus(await app.state(), {
    kinds: options.all ? RUN_KINDS : LISTED_KINDS,
    configuredStreams: async () => (await app.configuration()).streams.map(({ name }) => name),
    quotaUsage: app.quotaUsage,
  });
  const { binding } = reading;
  const queue = binding && queueAddress(app.queueStore(), QUEUES.changes, binding.stateId);
  if (options.json) printJson(statusToJson(reading, queue ?? null));
  else printStatus(reading);
}
