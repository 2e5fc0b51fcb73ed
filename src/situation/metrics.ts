// Facts for gauges: those of the situation, read as for every other surface, and some that only monitoring has a use for.
// Whole tables are counted apart: one that is too large, or locked, takes nothing else away.
import { countBookings } from '../state/bookings/read-reservations.js';
import { readClock, type Queries } from '../state/database.js';
import { readGates } from '../state/gates/gates.js';
import { listVerifications } from '../state/drift/verifications.js';
import { readInboxAge } from '../state/inbox/read-inbox.js';
import { countConnections } from '../state/processes.js';
import { countRecords } from '../state/records/read/count-records.js';
import { listDurations, listKindSuccesses, readBacklog, type KindSuccess } from '../state/runs/count-runs.js';
import { listStreams, readWholeSuccess } from '../state/streams.js';
import { readMoment } from './situation.js';

export type GaugeFacts = Awaited<ReturnType<typeof readGaugeFacts>>;
/** Null: it could not be read in time. */
export type CountedFacts = Awaited<ReturnType<typeof readCountedFacts>>;

/** Facts that are quickly read; `streams`: those of the configuration. */
export async function readGaugeFacts(tx: Queries, streams: readonly string[]) {
  return {
    ...(await readMoment(tx)),
    configured: streams,
    verifications: await listVerifications(tx),
    backlog: await readBacklog(tx),
    inboxAge: await readInboxAge(tx),
    durations: await listDurations(tx),
    streamStates: await listStreams(tx),
  };
}

/** Facts that count whole tables, each for itself. */
export async function readCountedFacts(tx: Queries, streams: readonly string[]) {
  const orNull = <T>(read: (part: Queries) => Promise<T>) => tx.transaction(read).catch(() => null);
  return {
    connections: await orNull(countConnections),
    runs: await orNull(async (part) => ({
      gates: await readGates(part),
      successes: [...(await listKindSuccesses(part)), await readSyncSuccess(part, streams)],
    })),
    bookings: await orNull(countBookings),
    records: await orNull(countRecords),
  };
}

/** Since all of these streams were synced whole. */
async function readSyncSuccess(tx: Queries, streams: readonly string[]): Promise<KindSuccess> {
  const [at, now] = [await readWholeSuccess(tx, streams), await readClock(tx)];
  return { kind: 'sync', ageSeconds: at && Math.max(0, (now.getTime() - at.getTime()) / 1000) };
}
