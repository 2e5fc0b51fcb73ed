import type { App } from '../app/app.js';
import { nextOfHeld } from '../documents/causes.js';
import { SlotsyncError, UsageError } from '../errors/errors.js';
import { print } from '../render/print.js';
import { readHoldingGate } from '../situation/chains.js';
import {
  forgetBooking,
  forgetKey,
  patternOf,
  type Forgotten,
  type ForgetRefusal,
} from '../state/records/forget-key.js';
import { actAs } from '../state/actions.js';
import { nameOfGate } from '../state/gates/gates.js';
import { readBinding } from '../state/destination-binding.js';
import type { Queries } from '../state/database.js';
import type { RecordKey } from '../state/records/outcome-types.js';
import { readRecord } from '../state/records/read/record-details.js';
import { BOOKINGS } from '../streams/config-schema.js';
import { joinKey, shortenKey } from '../streams/local-key.js';
import { lines } from '../text/format.js';
import type { CommonOptions, ReasonOption } from './command.js';
import { requireKnownStream } from './require-known.js';

export async function forget(
  app: App,
  stream: string,
  parts: string[],
  options: CommonOptions & ReasonOption & { force?: boolean },
): Promise<void> {
  const localKey = shortenKey(joinKey(parts));
  const key = { stream, localKey };
  const { db } = await app.state();
  const actor = await app.actor(options.reason);
  /** Logs the action without the key. Throws UsageError if the reason names the key, because the log keeps reasons. */
  const noted = <T extends Forgotten | ForgetRefusal>(act: (tx: Queries) => Promise<T | undefined>) =>
    actAs(db, actor, 'forget', act, (done) => {
      if (!done || 'refused' in done) return undefined;
      if (new RegExp(patternOf([localKey, ...done.externalIds])).test(actor.reason ?? ''))
        throw new UsageError('--reason contains the key or its external id, and reasons are kept', {
          remedy: 'Give another reason, such as the number of a ticket.',
        });
      return { subject: stream };
    });
  if (stream === BOOKINGS) {
    const forgotten = await noted((tx) => forgetBooking(tx, localKey));
    if (!forgotten) throw nothingOf(key);
    print(options, { ...key, ...forgotten }, describeForgotten(stream, forgotten));
    return;
  }
  const { streams } = await app.configuration();
  const declared = streams.find(({ name }) => name === stream);
  await requireKnownStream(app, { db }, stream);
  const record = await readRecord(db, stream, localKey);
  if (declared) {
    const { rows, unreadable } = await (await app.mirror()).readRows(declared, [localKey]);
    for (const reason of unreadable.values()) throw reason;
    if (rows.has(localKey)) {
      throw new UsageError(
        `the row of ${stream} '${localKey}' is in the mirror: the next run would add the record again`,
        {
          remedy: 'Delete the row in the mirror first.',
        },
      );
    }
  }
  if (record && record.objectHash !== null && record.status !== 'retired' && !options.force) {
    const gate = await readHoldingGate(db, key);
    const first = gate
      ? `Deactivate it first: it is held (${nameOfGate(gate)}). ${nextOfHeld(gate, localKey)}`
      : declared?.retire === 'keep'
        ? `No run deactivates it, because ${stream} has retire: 'keep'. Deactivate it at the service if nobody needs it`
        : `Deactivate it first: slotsync sync ${stream}`;
    throw new UsageError(
      `the object of ${stream} '${localKey}' is active at the service, and no run would deactivate it afterwards`,
      {
        remedy: declared
          ? `${first}. To leave the object active: slotsync forget with --force.`
          : `${stream} is not in the configuration, so no run deactivates it. To leave the object active: slotsync forget with --force. To deactivate it: add the stream again, then: slotsync sync ${stream}`,
      },
    );
  }
  // Deletes the jobs first. Otherwise a worker could read a job meanwhile and put the key into the inbox again.
  const jobs = await forgetJobs(app, key);
  const forgotten = await noted((tx) => forgetKey(tx, key, jobs > 0 ? { jobs } : {}));
  if (!forgotten) throw nothingOf(key);
  if ('refused' in forgotten) throw asUsageError(forgotten, stream);
  print(options, { ...key, ...forgotten }, describeForgotten(stream, forgotten));
}

/** Deletes the jobs that other programs queued for the key. Returns 0 if no run has ever created the queue. */
async function forgetJobs(app: App, key: RecordKey): Promise<number> {
  const bound = await readBinding(await app.state());
  if (!bound) return 0;
  const queue = await import('../queue/forget-jobs.js');
  const streams = await app.streams();
  await app.requireQueueStore();
  return queue.forgetJobs({ store: app.queueStore(), stateId: bound.stateId, streams, log: app.log }, key);
}

function describeForgotten(stream: string, { deleted, externalIds }: Forgotten): string[] {
  const tables = Object.entries(deleted).map(([table, count]) => `${table} ${count}`);
  return lines(
    `Deleted all data of this key of ${stream}: ${tables.join(', ')}.`,
    externalIds.length > 0 &&
      `The service may still have ${externalIds.join(', ')}. Delete it there: slotsync deletes no objects.`,
  );
}

function asUsageError(refusal: ForgetRefusal, stream: string): UsageError {
  if (refusal.refused === 'claimed') {
    const remedy = 'Run the command again when that batch has ended: slotsync status';
    return new UsageError(`a batch is writing the record of ${stream}`, { remedy });
  }
  const { runId } = refusal;
  return new UsageError(`run ${runId} includes the key and is unfinished`, {
    remedy: `Wait until the run has ended, or cancel it: slotsync cancel ${runId}`,
  });
}

const nothingOf = ({ stream, localKey }: { stream: string; localKey: string }) =>
  new SlotsyncError('not_found', `the state has no data about ${stream} '${localKey}'`);
