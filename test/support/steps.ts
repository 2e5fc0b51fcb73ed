// Steps and questions that most tests of worlds have, as methods of the world. `keepRooms` and `keepPlaces` open worlds with them.
import { addChanges } from '../../src/state/inbox/add-changes.js';
import { retryRecords } from '../../src/state/records/retry-records.js';
import { cancelRun } from '../../src/state/runs/end-run.js';
import type { RunRequest } from '../../src/state/runs/start-run.js';
import type { RunRange } from '../../src/state/schema.js';
import type { GateChoice } from '../../src/state/gates/answers.js';
import { explainRecord } from '../../src/sync/operator/explain.js';
import { previewStream } from '../../src/sync/plan/preview.js';
import { verify, type VerifyRequest } from '../../src/sync/verify/verify.js';
import * as gated from './gated-rooms.js';
import * as inPlaces from './place-worlds.js';
import * as inRooms from './room-worlds.js';
import type { SyncResult, World } from './world.js';

// The other things that these tests need, so that one import serves them.
export { COURSES, type Declaration } from './campus.js';
export { FEW, LIMITED } from './gated-rooms.js';
export { reasonHeld } from './held-reason.js';
export { OPERATOR } from './operator.js';
export { DESKS, HALLS, PLACES } from './place-worlds.js';
export { codes, ROOMS, rooms, roomsAndCourses } from './room-worlds.js';
export { statusOf } from './status.js';
export { until } from './wait.js';

type Fields = Record<string, string | readonly string[]>;

/** Fields as the service has them. An empty list is no value. */
export const fieldsFrom = (fields: Fields) =>
  Object.entries(fields).map(([fieldId, value]) => ({ fieldId, values: [value].flat() }));

/** `main`: the stream that a step is about unless it names another, whose objects have the type `type`. */
export function stepsOf(world: World, { main, type }: { main: string; type: string }) {
  const { sql, sandbox, state } = world;
  const idsWhere = (isMeant: (active: boolean) => boolean) =>
    sandbox.objects().flatMap(({ extId, active }) => (isMeant(active) ? [extId] : []));

  const runs = {
    /** Puts keys into the inbox, and works the run that takes them. */
    async send(stream: string, ...keys: string[]): Promise<SyncResult> {
      const { runId, queue } = await world.planChanges(stream, ...keys);
      return world.finish(runId, queue);
    },
    /** Puts keys into the inbox, and works it until nothing waits in it. */
    async push(stream: string, ...keys: string[]): Promise<number[]> {
      await addChanges(state.db, stream, keys);
      return world.drainInbox();
    },
    /** A run of the main stream that a command asks for, from its start to its end. */
    run: (request: Partial<RunRequest>) => gated.runOf(world, { streams: [main], ...request }),
    startRunOf: (request: Partial<RunRequest>) => gated.startRunOf(world, { streams: [main], ...request }),
    work: (runId: number) => gated.work(world, runId),
    workDue: () => gated.workDue(world),
    backfill: (range: RunRange) => gated.backfill(world, range),
    repair: () => gated.runOf(world, { streams: [main], kind: 'repair', lane: 'verify' }),
    cancel: (runId: number) => cancelRun(state.db, runId),
    verify: (request?: VerifyRequest) => verify(world.verifying(), request),
    preview: (stream = main) => previewStream(world.deps(), world.stream(stream)),
    explain: (key: string) => explainRecord(world.deps(), world.stream(main), key),
    /** So many times: a sync, the end of late writes, and a worker at the inbox. */
    async rounds(count: number): Promise<void> {
      for (let round = 0; round < count; round++) {
        await world.sync();
        await world.passLateWrites();
        await world.drainInbox();
      }
    },
  };

  const records = {
    recordOf: async (key: string, stream = main) => (await world.recordsOf(stream))[key],
    /** Lets these records of the main stream, or all of them, be sent again. */
    retry: (...keys: string[]) => retryRecords(state.db, { stream: main, keys }),
    /** Dates all records an hour back: finds may lag behind younger acceptances, and verify reads fresh objects twice. */
    passHour: () => sql`
      UPDATE slotsync.records SET updated_at = now() - interval '1 hour', synced_at = synced_at - interval '1 hour'`,
    /** As if all claims had been taken too long ago. */
    expireClaims: () => sql`UPDATE slotsync.records SET claimed_until = now() - interval '1 second'`,
    forgetFinishedRuns: () => gated.deleteFinishedRuns(world),
    nextDay: () => gated.nextDay(world),
  };

  const gates = {
    gates: () => gated.gatesOf(world),
    held: () => gated.heldOf(world, main),
    due: () => gated.dueOf(world),
    syncedAt: () => gated.syncedAt(world, main),
    reject: (runId: number, choice?: GateChoice) => gated.reject(world, runId, choice),
    freeze: (streams?: string[] | null, hours?: number) => gated.freeze(world, streams, hours),
    passFreezes: (hours?: number) => gated.passFreezes(world, hours),
  };

  const service = {
    /** External ids of the objects at the service. */
    ids: () => idsWhere(() => true),
    activeIds: () => idsWhere((active) => active),
    inactiveIds: () => idsWhere((active) => !active),
    isActive: (extId: string) => sandbox.object(extId)?.active,
    addObject: (extId: string | null, fields: Fields = {}, typeId = type) =>
      sandbox.addObject({ extId, typeId, fields: fieldsFrom(fields) }),
    /** Changes fields of an object, as a person does. */
    edit: (extId: string, fields: Fields) => sandbox.changeObject(extId, { fields: fieldsFrom(fields) }),
    /** Has the service refuse an object, with the message `no`. */
    refuse: (extId: string, status = 400) => sandbox.refuseObject(extId, { status, message: 'no' }),
    book: (extId: string, typeId?: string) => inRooms.bookObject(world, extId, typeId),
    expectNothingToSend: () => inRooms.expectNothingToSend(world),
  };
  return { ...runs, ...records, ...gates, ...service };
}

/** To be called where tests are declared: returns what opens a world with tables of rooms and courses. */
export function keepRooms() {
  const open = inRooms.keepRoomWorlds();
  return async (...config: Parameters<typeof open>) => withRoomSteps(await open(...config));
}

/** The same, with twenty rooms that were synced a day ago. */
export function keepSyncedRooms(columns?: string) {
  const open = gated.keepSyncedRooms(columns);
  return async (...config: Parameters<typeof open>) => withRoomSteps(await open(...config));
}

export type RoomWorld = ReturnType<typeof withRoomSteps>;

function withRoomSteps(world: World) {
  const { sql } = world;
  return {
    ...world,
    ...stepsOf(world, { main: 'rooms', type: 'room' }),
    addRooms: (...codes: string[]) => inRooms.addRooms(world, ...codes),
    remove: (...codes: string[]) => sql`DELETE FROM rooms WHERE code = ANY (${codes}::text[])`,
    rename: (code: string, name: string) => inRooms.rename(world, code, name),
    /** Renames these rooms, or all of them, to one name. */
    renameAll: (name: string, codes?: readonly string[]) =>
      sql`UPDATE rooms SET name = ${name} WHERE ${codes ? sql`code = ANY (${[...codes]})` : sql`true`}`,
    /** The name of a room's object at the service. */
    nameOf: (code: string) => inRooms.nameAtService(world, code),
    namesOf: (codes: readonly string[]) => gated.namesOf(world, codes),
    expectInSync: () => inRooms.expectInSync(world),
  };
}

export type PlaceWorld = ReturnType<typeof withPlaceSteps>;

/** To be called where tests are declared: returns what opens a world with empty tables of places, halls and desks. */
export function keepPlaces() {
  const open = inPlaces.keepPlaceWorlds();
  return async (...config: Parameters<typeof open>) => withPlaceSteps(await open(...config));
}

function withPlaceSteps(world: World) {
  type Rest<Step> = Step extends (first: World, ...rest: infer Given) => unknown ? Given : never;
  return {
    ...world,
    ...stepsOf(world, { main: 'places', type: 'place' }),
    insert: (...row: Rest<typeof inPlaces.insert>) => inPlaces.insert(world, ...row),
    syncPlaces: (...rows: Rest<typeof inPlaces.syncPlaces>) => inPlaces.syncPlaces(world, ...rows),
    rename: (id: number, name: string) => inPlaces.rename(world, id, name),
    setCode: (id: number, code: string) => inPlaces.setCode(world, id, code),
    replace: (...row: Rest<typeof inPlaces.replace>) => inPlaces.replace(world, ...row),
    takeOver: (...rows: Rest<typeof inPlaces.takeOver>) => inPlaces.takeOver(world, ...rows),
    /** The name of an object at the service. */
    nameOf: (extId: string) => inPlaces.nameOf(world, extId),
    planOlder: () => inPlaces.planOlder(world),
    loseAnswer: (run: Rest<typeof inPlaces.loseAnswer>[0]) => inPlaces.loseAnswer(world, run),
    dieWhileWriting: (run: Rest<typeof inPlaces.dieWhileWriting>[0]) => inPlaces.dieWhileWriting(world, run),
    comeToRest: () => inPlaces.comeToRest(world),
    expectOneOwner: () => inPlaces.expectOneOwner(world),
  };
}
