// Guarantees 6, 7
// A type whose cast to text differs from what it prints: `10.0.0.1/32` and `10.0.0.1`.
import { expect, it } from 'vitest';
import { expectNothingToSend } from '../support/room-worlds.js';
import { keepWorlds } from '../support/worlds.js';

const openWorld = keepWorlds();
const host = { from: 'hosts', type: 'host', externalId: 'host_{address}', fields: { 'host.name': 'name' } };
const NOTHING = { count: 0, percent: 0 };

it('rows with an inet column that are loaded again under new keys keep their objects', async () => {
  const limits = { retire: { count: 100, percent: 100 }, create: NOTHING };
  const world = await openWorld({
    streams: { hosts: { ...host, key: 'id', retire: 'deactivate', limits } },
  });
  await world.sql`CREATE TABLE hosts AS
    SELECT i AS id, ('10.0.0.' || i)::inet AS address, 'Host ' || i AS name FROM generate_series(1, 12) AS i`;
  await world.sync();
  await world.sql`UPDATE hosts SET id = id + 100`;
  expect((await world.sync()).run).toMatchObject({ status: 'succeeded' });
  expect(world.sandbox.objects().filter(({ active }) => !active)).toEqual([]);
  expect(await world.statusesOf('hosts')).toMatchObject({ 101: 'synced', 112: 'synced' });
  await expectNothingToSend(world);
});

it('references to an inet key arrive', async () => {
  const world = await openWorld({
    streams: {
      hosts: { ...host, key: 'address', externalId: 'host_{name}' },
      ports: {
        from: 'ports',
        key: ['address', 'port'],
        type: 'port',
        externalId: 'port_{address}_{port}',
        fields: {},
        references: { 'port.host': { stream: 'hosts', key: 'address' } },
      },
    },
  });
  await world.sql`CREATE TABLE hosts AS SELECT '10.0.0.1'::inet AS address, 'a' AS name`;
  await world.sql`CREATE TABLE ports AS SELECT '10.0.0.1'::inet AS address, 80 AS port`;
  await world.sync();
  expect(await world.statusesOf('ports')).toEqual({ '10.0.0.1|80': 'synced' });
  expect(world.fieldsOf('port_10.0.0.1_80')).toEqual({ 'port.host': 'host_a' });
});
