// Number of requests of a run, counted at the service by endpoint, because the quota counts requests, not objects. Ten streams
// of ten types, some of which refer to others, half of them written without being read.
import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { rehearseOnce } from '../support/rehearsals.js';
import { until } from '../support/wait.js';

const STREAMS = Array.from({ length: 10 }, (_, at) => `s${at}`);
const FIRST_ROWS = 40;

/** Every second stream owns its objects whole; of five, the last two refer to others. */
function declare(name: string, at: number): string {
  const parent = at % 5 > 2 ? STREAMS[at - 3] : undefined;
  const references = parent && `references: { '${name}.parent': { stream: '${parent}', key: 'parent' } },`;
  return `${name}: {
    from: '${name}', key: 'code', type: 'type_${at}', externalId: '${name}_{code}',
    owns: '${at % 2 === 0 ? 'fields' : 'object'}', fields: { '${name}.name': 'name' }, ${references ?? ''}
  },`;
}

const CONFIGURATION = `
import { defineConfig } from 'slotsync';
export default defineConfig({ streams: { ${STREAMS.map(declare).join('\n')} } });
`;

const SCHEMA = {
  types: STREAMS.map((_, at) => ({ extId: `type_${at}` })),
  fields: STREAMS.flatMap((name) => [{ extId: `${name}.name` }, { extId: `${name}.parent` }]),
};

/** The fewest requests of a new process beside reads and writes. */
const BESIDE = { authenticate: 1, types: 1, fields: 1 };

describe('the requests of a run', () => {
  const world = rehearseOnce({ sandbox: { rate: 0, schema: SCHEMA } });
  beforeAll(async () => {
    await world.configure(CONFIGURATION);
    for (const name of STREAMS)
      await world.sql.unsafe(`
        CREATE TABLE ${name} (code text PRIMARY KEY, name text, parent text);
        INSERT INTO ${name} SELECT 'c' || i, 'Name ' || i, 'c' || i FROM generate_series(1, ${FIRST_ROWS}) AS i`);
    await world.read('sync');
    expect(world.sandbox.objects()).toHaveLength(STREAMS.length * FIRST_ROWS);
  });
  beforeEach(() => world.sandbox.clearArrivals());

  /** Returns the number of requests by endpoint. */
  function counted(): Record<string, number> {
    const counts: Record<string, number> = {};
    for (const { method, path } of world.sandbox.arrivals()) {
      const last = path.split('/').slice(method === 'PUT' ? -1 : -2);
      const endpoint =
        method === 'PUT' ? 'writes' : path.endsWith('/authenticate') ? 'authenticate' : last[0];
      counts[endpoint ?? path] = (counts[endpoint ?? path] ?? 0) + 1;
    }
    return counts;
  }
  const isThere = (extId: string, name: string) =>
    world.sandbox.object(extId)?.fields.some(({ values }) => values.includes(name));

  it('are absent without a change', async () => {
    await world.read('sync');
    expect(counted()).toEqual({});
  });

  it('are a write for each of ten changed streams, and a read where fields are kept', async () => {
    for (const name of STREAMS)
      await world.sql`UPDATE ${world.sql(name)} SET name = name || ' new' WHERE code IN ('c1', 'c2', 'c3')`;
    await world.read('sync');
    expect(counted()).toEqual({ writes: 10, objects: 5, ...BESIDE });
    expect(STREAMS.every((name) => isThere(`${name}_c3`, 'Name 3 new'))).toBe(true);
  });

  it('are a write and a read for each of ten streams with new rows', async () => {
    for (const name of STREAMS)
      await world.sql`INSERT INTO ${world.sql(name)} SELECT 'n' || i, 'New', 'c1' FROM generate_series(1, 3) AS i`;
    await world.read('sync');
    expect(counted()).toEqual({ writes: 10, objects: 10, ...BESIDE });
    expect(STREAMS.every((name) => isThere(`${name}_n3`, 'New'))).toBe(true);
  });

  it('are, in a worker with a token, a write for a change, and a read where fields are kept', async () => {
    const worker = await world.startWorker();
    const change = async (name: string, code: string, to: string) => {
      await world.sql`UPDATE ${world.sql(name)} SET name = ${to} WHERE code = ${code}`;
      await world.read(['push', name, code]);
      const isSynced = async () => {
        const [row] = await world.sql`SELECT FROM slotsync.runs WHERE finished_at IS NULL`;
        return isThere(`${name}_${code}`, to) && !row;
      };
      await until(isSynced, { describe: () => `${name} ${code} to be ${to}: ${worker.output()}` });
    };
    await change('s0', 'c1', 'first');
    await change('s1', 'c1', 'first');
    world.sandbox.clearArrivals();
    await change('s0', 'c1', 'second');
    expect(counted()).toEqual({ objects: 1, writes: 1 });
    world.sandbox.clearArrivals();
    await change('s1', 'c1', 'second');
    expect(counted()).toEqual({ writes: 1 });

    // Nor do its whole runs ask again for names that it knows.
    world.sandbox.clearArrivals();
    for (const name of ['s0', 's1'])
      await world.sql`UPDATE ${world.sql(name)} SET name = 'third' WHERE code IN ('c1', 'c2', 'c3')`;
    await world.read('sync --detach');
    const isSynced = () => isThere('s0_c3', 'third') && isThere('s1_c3', 'third');
    await until(isSynced, { describe: () => `the run to be done: ${worker.output()}` });
    expect(counted()).toEqual({ objects: 1, writes: 2 });
  });
});
