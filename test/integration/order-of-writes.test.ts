// Guarantees 2, 4
// Guarantee 4, in any order of events: batches of several runs and lanes with keys in common, while rows change. The state
// is real; the service is a model whose every step waits for its turn, so that random interleavings can be repeated.
import { setImmediate } from 'node:timers/promises';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Destination, ServiceObject, PutResult } from '../../src/destination/destination.js';
import { dispositionOf, SlotsyncError } from '../../src/errors/errors.js';
import { advanceRun } from '../../src/state/runs/advance-run.js';
import { listQueuedBatches, readBatch } from '../../src/state/runs/batches.js';
import { createObject, hashObject, isSameObject } from '../../src/streams/destination-object.js';
import { applyBatch, type ApplyDeps } from '../../src/sync/apply/apply-batch.js';
import { planRun } from '../../src/sync/plan/plan-run.js';
import { ROOMS } from '../support/campus.js';
import { playPuts } from '../support/play-put.js';
import { createSharedDatabase, openWorld, type SharedDatabase, type World } from '../support/world.js';

const KEYS = ['A', 'B', 'C', 'D'];
/** And `Z`, which no batch names and nothing changes: an empty source would retire nothing. */
const LANES = ['incremental', 'sync', 'backfill'] as const;

interface Schedule {
  owns: 'fields' | 'object';
  batches: { lane: (typeof LANES)[number]; keys: string[]; isForced: boolean }[];
  /** Rows that change meanwhile: which, and to what; null: it goes. */
  changes: { key: string; name: string | null }[];
  /** Says of each write whether it loses its answer. */
  lost: boolean[];
}

let database: SharedDatabase;
let world: World;
beforeAll(async () => {
  database = await createSharedDatabase();
  world = await openWorld(configOf('object'), { database });
  await world.sql`CREATE TABLE rooms (code text PRIMARY KEY, name text)`;
});
afterAll(async () => {
  await world.close();
  await database.drop();
});

function configOf(owns: 'fields' | 'object') {
  return { streams: { rooms: { ...ROOMS, retire: 'deactivate' as const, owns } } };
}

/** A model of the service. The scheduler decides the moment of every step of an answer. */
function createModel(turn: (what: string) => Promise<unknown>, lost: readonly boolean[]) {
  const objects = new Map<string, ServiceObject>();
  const inFlight = new Set<string>();
  const faults: string[] = [];
  let writes = 0;
  let isLossy = true;

  const puts = playPuts(async (sent) => {
    const isLost = isLossy && (lost[writes++ % Math.max(1, lost.length)] ?? false);
    for (const { extId } of sent) {
      if (inFlight.has(extId)) faults.push(`two writes of ${extId} are in flight`);
      inFlight.add(extId);
    }
    await turn('put arrives');
    const results = new Map<string, PutResult>();
    for (const object of sent) {
      const id = objects.get(object.extId)?.id ?? String(objects.size + 1);
      objects.set(object.extId, { ...object, id });
      results.set(object.extId, { accepted: true, id });
    }
    await turn('put is answered');
    for (const { extId } of sent) inFlight.delete(extId);
    if (isLost) throw new SlotsyncError('answer_lost', 'no answer');
    return results;
  });
  const verbs: Pick<
    Destination,
    'findObjects' | 'findObjectsByNumber' | 'openPut' | 'requestTimeoutMs' | 'lateWriteMs' | 'binding'
  > = {
    ...puts,
    requestTimeoutMs: 30_000,
    lateWriteMs: 60_000,
    binding: { baseUrl: 'http://127.0.0.1', organizationId: 'demo', region: 'EU_EES' },
    findObjectsByNumber: async () => new Map(),
    async findObjects(extIds) {
      await turn('find arrives');
      const found = extIds.flatMap((extId) => {
        const object = objects.get(extId);
        return object ? [[extId, object] as const] : [];
      });
      await turn('find is answered');
      return new Map(found);
    },
  };
  return {
    verbs,
    objects,
    faults,
    /** From now on every answer arrives. */
    heal: () => (isLossy = false),
  };
}

/**
 * Lets actors proceed one turn at a time. A turn is given out only when every remaining actor waits for one, so that the speed
 * of the database has no influence.
 */
function createStage(scheduler: fc.Scheduler) {
  let waiting = 0;
  return {
    async turn(what: string): Promise<void> {
      waiting++;
      await scheduler.schedule(Promise.resolve(), what);
      waiting--;
    },
    async play(actors: readonly Promise<unknown>[]): Promise<void> {
      const acting = new Set(actors);
      const played = Promise.all(actors.map((actor) => actor.finally(() => acting.delete(actor))));
      played.catch(() => undefined); // awaited below, when everybody has left
      while (acting.size > 0) {
        if (waiting === acting.size) await scheduler.waitNext(1);
        await setImmediate();
      }
      await played;
    },
  };
}

type Model = ReturnType<typeof createModel>;

async function insertBatch({ lane, keys, isForced }: Schedule['batches'][number]): Promise<number> {
  const kind = lane;
  const [run] = await world.sql<{ id: number }[]>`
    INSERT INTO slotsync.runs (kind, lane, started_by, streams, status, range)
    VALUES (${kind}, ${lane}, 'command', '{rooms}', 'running', ${isForced ? '{"force": true}' : null}::jsonb) RETURNING id::int`;
  const [batch] = await world.sql<{ id: number }[]>`
    INSERT INTO slotsync.batches (run_id, stream, level, keys, state)
    VALUES (${run?.id ?? 0}, 'rooms', 0, ${keys}, 'queued') RETURNING id::int`;
  return batch?.id ?? 0;
}

/** Applies a batch as the queue does: again and again until it has ended. */
async function workOff(deps: ApplyDeps, batchId: number, again: () => Promise<unknown>): Promise<void> {
  while (true) {
    const batch = await readBatch(world.state.db, batchId);
    if (batch?.state !== 'queued') return;
    try {
      await applyBatch(deps, batch);
      await advanceRun(world.state.db, batch.runId);
    } catch (error) {
      if (dispositionOf(error) === 'dead') throw error;
      await again();
    }
  }
}

/** Finds records that are `synced` with something else than the service accepted last. */
async function findLies({ objects }: Model): Promise<string[]> {
  const records = await world.sql<{ external_id: string; object_hash: string }[]>`
    SELECT external_id, object_hash FROM slotsync.records
    WHERE status = 'synced' AND NOT in_doubt AND claimed_by IS NULL`;
  return records.flatMap(({ external_id, object_hash }) => {
    const there = objects.get(external_id);
    return there && hashObject(there) === object_hash ? [] : [`${external_id} is not as its record says`];
  });
}

async function syncOnce(deps: ApplyDeps): Promise<void> {
  await world.sql`UPDATE slotsync.runs SET finished_at = now(), status = 'cancelled' WHERE finished_at IS NULL`;
  const [run] = await world.sql<{ id: number }[]>`
    INSERT INTO slotsync.runs (kind, lane, started_by, streams, status)
    VALUES ('sync', 'sync', 'command', '{rooms}', 'planning') RETURNING id::int`;
  const nameCheck = { requireKnownNames: async () => undefined };
  const { db } = world.state;
  const runId = run?.id ?? 0;
  await planRun({ ...deps, nameCheck }, runId);
  for (;;) {
    const [next] = await listQueuedBatches(db, runId);
    if (!next) return;
    await workOff(deps, next.id, async () => undefined);
  }
}

const keys = fc.subarray(KEYS, { minLength: 1 });
const schedules: fc.Arbitrary<Schedule> = fc.record({
  owns: fc.constantFrom('fields', 'object'),
  batches: fc.array(fc.record({ lane: fc.constantFrom(...LANES), keys, isForced: fc.boolean() }), {
    minLength: 2,
    maxLength: 4,
  }),
  changes: fc.array(
    fc.record({
      key: fc.constantFrom(...KEYS),
      name: fc.option(fc.constantFrom('one', 'two', 'three'), { freq: 6 }),
    }),
    { maxLength: 6 },
  ),
  lost: fc.array(fc.boolean(), { maxLength: 3 }),
});

describe('concurrent batches with the same keys', () => {
  it('never write one key at once, and end with every object as its row maps', async () => {
    let contended = 0;
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), schedules, async (scheduler, schedule) => {
        await world.sql`TRUNCATE slotsync.records, slotsync.batches, slotsync.runs, slotsync.streams, slotsync.gates, slotsync.held, slotsync.sent, rooms`;
        await world.sql`INSERT INTO rooms SELECT c, 'first' FROM unnest(${[...KEYS, 'Z']}::text[]) AS c`;
        world.configure(configOf(schedule.owns));
        const { turn, play } = createStage(scheduler);
        const model = createModel(turn, schedule.lost);
        const deps: ApplyDeps = { ...world.deps(), destination: model.verbs as Destination };

        const ids: number[] = [];
        for (const batch of schedule.batches) ids.push(await insertBatch(batch));
        const changing = async () => {
          for (const { key, name } of schedule.changes) {
            await turn(`${key} changes`);
            if (name === null) await world.sql`DELETE FROM rooms WHERE code = ${key}`;
            else
              await world.sql`INSERT INTO rooms VALUES (${key}, ${name}) ON CONFLICT (code) DO UPDATE SET name = ${name}`;
          }
        };
        const again = async () => {
          contended++;
          expect(await findLies(model)).toEqual([]);
          await turn('again');
          if (contended % 50 === 0) model.heal();
        };
        await play([changing(), ...ids.map((id) => workOff(deps, id, again))]);
        expect(model.faults).toEqual([]);
        expect(await findLies(model)).toEqual([]);

        model.heal();
        await play([syncOnce(deps)]);
        expect(model.faults).toEqual([]);
        expect(await findLies(model)).toEqual([]);
        const rows = await world.sql<{ code: string; name: string }[]>`SELECT code, name FROM rooms`;
        for (const { code, name } of rows) {
          const mapped = createObject(`room_${code}`, 'room', true, [['room.name', [name]]]);
          const there = model.objects.get(mapped.extId);
          expect(there && isSameObject(there, mapped)).toBe(true);
        }
        const living = new Set(rows.map(({ code }) => `room_${code}`));
        for (const { extId, active } of model.objects.values())
          expect([extId, active]).toEqual([extId, living.has(extId)]);
      }),
      { seed: 20_261_120, numRuns: 40, interruptAfterTimeLimit: 30_000 },
    );
    expect(contended).toBeGreaterThan(10);
  });
});
