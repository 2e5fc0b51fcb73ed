// Where each batch reads the whole source, batches hold more keys, and plan, check and the log say what would help.
import { describe, expect, it } from 'vitest';
import { checkConfiguration } from '../../src/config-file.js';
import { describePlans } from '../../src/report/plan.js';
import { checkAll, type Finding } from '../../src/sync/check.js';
import { previewStream } from '../../src/sync/plan/preview.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { ROOMS } from '../support/campus.js';
import type { World } from '../support/world.js';
import { keepWorlds } from '../support/worlds.js';

const openWorld = keepWorlds();

const ROWS = 12_000;
const TABLE: SlotsyncConfig = { streams: { rooms: ROOMS } };
const QUERY: SlotsyncConfig = {
  streams: { rooms: { ...ROOMS, from: { query: 'SELECT DISTINCT ON (name) code, name FROM rooms' } } },
};

async function open(config: SlotsyncConfig, rows = ROWS): Promise<World> {
  const world = await openWorld(config, { costly: { share: 0.2, cost: 400 } });
  await world.sql`CREATE TABLE rooms (code text, name text)`;
  await world.sql`INSERT INTO rooms SELECT 'r' || i, 'Room ' || i FROM generate_series(1, ${rows}::int) AS i`;
  await world.sql`ANALYZE rooms`;
  return world;
}

async function keysOfBatches(world: World): Promise<number[]> {
  const rows = await world.sql<{ keys: number }[]>`
    SELECT cardinality(keys) AS keys FROM slotsync.batches ORDER BY id`;
  return rows.map(({ keys }) => keys);
}

const warningsOf = (world: World) =>
  world.lines.map((line) => JSON.parse(line) as Record<string, unknown>).filter(({ level }) => level === 40);

describe('batches', () => {
  it('hold more keys where each reads the whole source, and the log says so once', async () => {
    const world = await open(TABLE);
    await world.plan();
    expect(await keysOfBatches(world)).toEqual([5000, 5000, 2000]);
    expect(warningsOf(world)).toEqual([
      expect.objectContaining({
        msg: 'each batch reads the whole source',
        stream: 'rooms',
        batches: 3,
        indexes: ['CREATE INDEX ON public.rooms (code);'],
      }),
    ]);
  });

  it('are as ever with an index, and with less than one of them to be sent', async () => {
    const world = await open(TABLE);
    await world.sql`CREATE INDEX ON rooms (code)`;
    const { runId, queue } = await world.plan();
    expect(Math.max(...(await keysOfBatches(world)))).toBeLessThan(5000);
    await world.finish(runId, queue);
    await world.sql`DROP INDEX rooms_code_idx`;
    await world.sql`UPDATE rooms SET name = 'Aula' WHERE code = 'r7'`;
    await world.sql`DELETE FROM slotsync.batches`;
    await world.plan();
    expect(await keysOfBatches(world)).toEqual([1]);
    expect(warningsOf(world)).toEqual([]);
  });

  it('are sent whole: every record is synced', async () => {
    const world = await open(QUERY);
    const { run, errors } = await world.sync();
    expect([run.status, errors]).toEqual(['succeeded', []]);
    expect(await keysOfBatches(world)).toEqual([5000, 5000, 2000]);
    expect(world.metered('rooms', 'synced')).toBe(ROWS);
  });
});

it('batches: objects are read at the service as they are sent, a thousand at once', async () => {
  const world = await open(TABLE);
  const { queue } = await world.plan();
  world.sandbox.clearArrivals();
  await world.apply(queue[0] ?? NaN);
  const requests = world.sandbox.arrivals().map(({ method }) => method);
  const turns = requests.filter((method, at) => method !== requests[at - 1]);
  expect(turns).toEqual(Array.from({ length: 5 }, () => ['POST', 'PUT']).flat());
  expect(requests.filter((method) => method === 'POST')).toHaveLength(5);
});

describe('plan', () => {
  const cost = { requests: 1, rate: 20, latencyMs: 100, seconds: 1, endsAt: new Date() };

  it.each<[string, SlotsyncConfig, string[]]>([
    [
      'an index that helps',
      TABLE,
      [
        'rooms: each of 3 batches scans all 12 000 rows of public.rooms.',
        '  → CREATE INDEX ON public.rooms (code);',
      ],
    ],
    [
      'what helps where no index does',
      QUERY,
      [
        'rooms: each of 3 batches queries all 12 000 rows of public.rooms.',
        '  → Read a table or materialized view with a unique index on code.',
      ],
    ],
  ])('names %s', async (_, config, expected) => {
    const world = await open(config);
    const preview = await previewStream(world.deps(), world.stream('rooms'));
    const printed = describePlans([preview], cost, { samples: false, timeZone: 'UTC' });
    const at = printed.indexOf(expected[0] ?? '');
    expect(printed.slice(at, at + 2)).toEqual(expected);
    expect(Math.max(...expected.map(({ length }) => length))).toBeLessThanOrEqual(80);
  });
});

it('plan: a few batches are not worth a word', async () => {
  const world = await open(TABLE);
  const preview = (records: number) =>
    previewStream(world.deps(), world.stream('rooms'), { room: { records } });
  expect((await preview(1500)).costly).toBeUndefined();
  expect((await preview(11_000)).costly).toMatchObject({ batches: 3, mattersFrom: 2 });
});

describe('check', () => {
  async function warnings(world: World): Promise<Finding[]> {
    const found: Finding[] = [];
    const deps = {
      configuration: checkConfiguration(TABLE),
      confirmedState: async () => world.state,
      mirror: world.mirror,
      destination: async () => world.destination,
      isQuotaInState: false,
    };
    for await (const finding of checkAll(deps)) found.push(finding);
    return found.filter(({ what, result }) => what === 'source of rooms' && result !== 'ok');
  }

  it('warns of a source that each batch would read whole, as long as there is no index', async () => {
    const world = await open(TABLE);
    expect(await warnings(world)).toEqual([
      {
        what: 'source of rooms',
        result: 'warning',
        text: 'each of 3 batches scans all 12 000 rows of public.rooms',
        remedy: 'CREATE INDEX ON public.rooms (code);',
        reading: expect.objectContaining({ batches: 3, rows: ROWS }) as unknown,
      },
    ]);
    await world.sql`CREATE INDEX ON rooms (code)`;
    expect(await warnings(world)).toEqual([]);
  });
});
