// Steps and questions of tests of gates, in a world of rooms.
import { freezeStreams } from '../../src/state/freezes.js';
import { rejectGates, type GateChoice } from '../../src/state/gates/answers.js';
import { readGates } from '../../src/state/gates/gates.js';
import { type RunRequest, startRun } from '../../src/state/runs/start-run.js';
import type { RunRange } from '../../src/state/schema.js';
import { listStreams } from '../../src/state/streams.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { startDue } from '../../src/sync/run/start-due-syncs.js';
import { OPERATOR } from './operator.js';
import { addRooms, codes, keepRoomWorlds, nameAtService } from './room-worlds.js';
import type { SyncResult, World, WorldOptions } from './world.js';

/** A limit that two records do not exceed, and three do. */
export const FEW = { count: 2, percent: 2 };
export const LIMITED = { limits: { update: FEW, create: FEW } };
const HOUR = 60 * 60 * 1000;

/** `rooms update limit 3`, of each gate; with ` approved` or ` rejected` where an operator has answered. */
export async function gatesOf({ state }: World): Promise<string[]> {
  const gates = await readGates(state.db);
  return gates
    .map(({ stream, operation, reason, count, approval, rejectedAt }) =>
      [stream, operation, reason, count, approval && 'approved', rejectedAt && 'rejected']
        .filter((part) => part !== null)
        .join(' '),
    )
    .toSorted();
}

/** The keys of a stream that gates keep back. */
export async function heldOf({ sql }: World, stream = 'rooms'): Promise<string[]> {
  const rows = await sql<{ key: string }[]>`
    SELECT local_key AS key FROM slotsync.held WHERE stream = ${stream} ORDER BY local_key`;
  return rows.map(({ key }) => key);
}

/** `stream → reason` of the streams that are due. */
export async function dueOf({ state }: World): Promise<Record<string, string>> {
  const streams = await listStreams(state.db);
  return Object.fromEntries(
    streams.flatMap(({ stream, dueReason }) => (dueReason === null ? [] : [[stream, dueReason]])),
  );
}

export const syncedAt = async ({ state }: World, stream = 'rooms') =>
  (await listStreams(state.db)).find((one) => one.stream === stream)?.syncedAt ?? null;

/** Starts a run of rooms that a command asks for. Returns its number. */
export async function startRunOf({ state }: World, request: Partial<RunRequest>): Promise<number> {
  const { run, started } = await startRun(state.db, {
    kind: 'sync',
    lane: 'sync',
    startedBy: 'command',
    streams: ['rooms'],
    ...request,
  });
  if (!started) throw new Error(`run ${run.id} over the same streams is not finished`);
  return run.id;
}

/** Plans a run that was started, and works it to its end. */
export async function work(world: World, runId: number): Promise<SyncResult> {
  const { queue } = await world.planRun(runId);
  return world.finish(runId, queue);
}

/** The same of a run that a command asks for, from its start. */
export const runOf = async (world: World, request: Partial<RunRequest>): Promise<SyncResult> =>
  work(world, await startRunOf(world, request));

export const backfill = (world: World, range: RunRange) =>
  runOf(world, { kind: 'backfill', lane: 'backfill', range });

/** Does what a worker does about streams that are due: their runs, from their starts to their ends. */
export async function workDue(world: World): Promise<SyncResult[]> {
  const ended: SyncResult[] = [];
  for (const { id } of await startDue(world.deps())) ended.push(await work(world, id));
  return ended;
}

export const reject = ({ state }: World, runId: number, choice: GateChoice = {}) =>
  rejectGates(state.db, runId, choice, OPERATOR);

/** Freezes streams, or all of them, for two hours unless another number is given. */
export const freeze = ({ state }: World, streams: string[] | null = ['rooms'], hours = 2) =>
  freezeStreams(state.db, {
    streams,
    endsAt: new Date(Date.now() + hours * HOUR),
    reason: 'exam weeks',
    by: 'ada',
  });

/** Hours pass for the freezes. */
export const passFreezes = ({ sql }: World, hours = 3) =>
  sql`UPDATE slotsync.freezes SET begins_at = begins_at - make_interval(hours => ${hours}::int),
    ends_at = ends_at - make_interval(hours => ${hours}::int)`;

/** Dates everything that was accepted a day earlier. */
export async function nextDay({ sql }: World): Promise<void> {
  await sql`UPDATE slotsync.sent SET hour = hour - interval '1 day'`;
  await sql`UPDATE slotsync.records SET synced_at = synced_at - interval '1 day'`;
}

/** Renames these rooms, all of them alike. */
export const renameAll = ({ sql }: World, some: readonly string[], name: string) =>
  sql`UPDATE rooms SET name = ${name} WHERE code = ANY (${[...some]})`;
export const namesOf = (world: World, some: readonly string[]) =>
  some.map((code) => nameAtService(world, code));

/**
 * To be called where tests are declared: returns what opens a world in which twenty rooms were synced a day ago.
 * `columns`: what the table of rooms has besides, as SQL adds it.
 */
export function keepSyncedRooms(columns?: string) {
  const open = keepRoomWorlds();
  return async (config: SlotsyncConfig, options?: WorldOptions): Promise<World> => {
    const world = await open(config, options);
    if (columns !== undefined) await world.sql.unsafe(`ALTER TABLE rooms ADD ${columns}`);
    await addRooms(world, ...codes(20));
    await world.sync();
    await nextDay(world);
    world.sandbox.clearArrivals();
    return world;
  };
}

/** The history of runs is gone. */
export const deleteFinishedRuns = ({ sql }: World) =>
  sql`DELETE FROM slotsync.runs WHERE finished_at IS NOT NULL`;
