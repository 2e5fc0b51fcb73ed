// The reading of a batch that takes long is reported with its statement and its plan, by the log and by check.
import { describe, expect, it } from 'vitest';
import { checkConfiguration } from '../../src/config/config-file.js';
import { checkAll, type Finding } from '../../src/sync/operator/check.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { ROOMS } from '../support/campus.js';
import type { World } from '../support/world.js';
import { keepWorlds } from '../support/worlds.js';

const openWorld = keepWorlds();

const CONFIG: SlotsyncConfig = { streams: { rooms: { ...ROOMS, batchSize: 100 } } };
const ROWS = 250;

/** A quote and a backslash: a key in a statement is found by neither. */
const KEY = String.raw`O'Neil\'s`;

/** `slowMs`: -1, every reading is slow. */
async function open(slowMs?: number): Promise<World> {
  const world = await openWorld(CONFIG, slowMs === undefined ? {} : { slowMs });
  await world.sql`CREATE TABLE rooms (code text, name text)`;
  await world.sql`INSERT INTO rooms SELECT ${KEY} || i, 'Room ' || i FROM generate_series(1, ${ROWS}::int) AS i`;
  return world;
}

const warningsOf = (world: World) =>
  world.lines.map((line) => JSON.parse(line) as Record<string, unknown>).filter(({ level }) => level === 40);

async function checkSource(world: World): Promise<Finding[]> {
  const findings: Finding[] = [];
  const deps = {
    configuration: checkConfiguration(CONFIG),
    confirmedState: async () => world.state,
    mirror: world.mirror,
    destination: async () => world.destination,
    isQuotaInState: false,
  };
  for await (const finding of checkAll(deps)) findings.push(finding);
  return findings.filter(({ what }) => what === 'source of rooms');
}

const SLOW = {
  keys: 100,
  seconds: expect.any(Number) as number,
  statement: expect.stringMatching(/^SELECT slotsync_read\.\*.* WHERE .*"code" = ANY \(.*'…'/) as string,
  plan: expect.stringMatching(/Seq Scan on rooms slotsync_row.*\n +Filter: .*code = ANY \('…'/) as string,
};

describe('a slow reading', () => {
  it('is warned of once for a stream of a run, without the keys', async () => {
    const world = await open(-1);
    await world.sync();
    expect(warningsOf(world)).toEqual([expect.objectContaining(SLOW)]);
    expect(JSON.stringify(warningsOf(world))).not.toContain('Neil');
    await world.sql`UPDATE rooms SET name = name || '.'`;
    await world.sync();
    expect(warningsOf(world)).toHaveLength(2);
  });

  it('is a warning of check with the statement, the plan and where to read on', async () => {
    const world = await open(-1);
    const [source, warning] = await checkSource(world);
    expect(source?.result).toBe('ok');
    expect(warning).toMatchObject({ result: 'warning', reading: SLOW });
    expect(warning?.text).toMatch(/^reading the 100 rows of a batch took \d.* s$/);
    expect(warning?.remedy).toContain('docs/costs.md');
    expect(JSON.stringify(warning)).not.toContain('Neil');
  });
});

it('a quick reading: neither the log nor check says anything of it', async () => {
  const world = await open();
  await world.sync();
  expect(warningsOf(world)).toEqual([]);
  expect((await checkSource(world)).map(({ result }) => result)).toEqual(['ok']);
});
