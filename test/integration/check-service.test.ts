// The assumptions of `check` about the service: probed without a write, and with the one object that may be written back.
import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { checkConfiguration } from '../../src/config/config-file.js';
import type { SandboxOptions } from '../../src/sandbox/sandbox.js';
import { exceptRecords } from '../../src/state/exceptions.js';
import { freezeStreams } from '../../src/state/freezes.js';
import { linkRecords } from '../../src/state/records/links.js';
import { checkAll, type Finding } from '../../src/sync/operator/check.js';
import { probeAssumptions } from '../../src/sync/operator/probe-assumptions.js';
import { probeWrite } from '../../src/sync/operator/write-probe.js';
import { COURSES, ROOMS } from '../support/campus.js';
import type { ExternalIdRule } from '../../src/streams/external-id-rule.js';
import { openWorld, type World } from '../support/world.js';

let world: World;
afterEach(() => world.close());

interface FreezeConfig {
  from: string;
  to: string;
  streams?: string[];
  reason: string;
}

async function open(sandbox: SandboxOptions = {}, assignExternalIds = false): Promise<World> {
  world = await openWorld({ streams: { rooms: ROOMS }, service: { assignExternalIds } }, { sandbox });
  return world;
}

const fields = [{ fieldId: 'room.name', values: ['Aula'] }];
const puts = () => world.sandbox.arrivals().filter(({ method }) => method === 'PUT');

describe('the assumption field-search', () => {
  const probe = async () => {
    const token = await world.destination.authenticate();
    const all = await probeAssumptions(world.destination, token);
    return all.find(({ name }) => name === 'field-search');
  };

  it('holds when a value that was just read is found again', async () => {
    await open();
    world.sandbox.addObject({ typeId: 'room', fields });
    expect(await probe()).toMatchObject({ held: 'yes', found: expect.not.stringContaining('Aula') });
    expect(puts()).toEqual([]);
  });

  it('does not hold when the service refuses the search', async () => {
    await open({ searchesFields: false });
    world.sandbox.addObject({ typeId: 'room', fields });
    expect(await probe()).toMatchObject({ held: 'no' });
  });

  it('does not hold when the service ignores the filter', async () => {
    await open({ searchesFields: 'ignored' });
    world.sandbox.addObject({ typeId: 'room', fields });
    expect(await probe()).toMatchObject({ held: 'no', found: expect.stringContaining('all the same') });
  });

  it('is unknown without a value to search for', async () => {
    await open();
    expect(await probe()).toMatchObject({ held: 'unknown' });
    world.sandbox.addObject({ typeId: 'room' });
    expect(await probe()).toMatchObject({ held: 'unknown' });
  });
});

describe('the assumption external-ids', () => {
  async function probe(sandbox: SandboxOptions, externalIds: ExternalIdRule = {}) {
    world = await openWorld({ streams: { rooms: ROOMS }, service: { externalIds } }, { sandbox });
    const token = await world.destination.authenticate();
    world.sandbox.addObject({ extId: 'room_\u00c51', typeId: 'room', fields });
    const all = await probeAssumptions(world.destination, token);
    return all.find(({ name }) => name === 'external-ids');
  }

  it('holds when no other spelling finds the object', async () => {
    expect(await probe({})).toMatchObject({ held: 'yes' });
    expect(puts()).toEqual([]);
  });

  it.each([
    ['ignore-case', { case: 'insensitive' }, "{ case: 'insensitive' }"],
    ['trim', { trim: true }, '{ trim: true }'],
    ['normalize', { normalize: 'NFC' }, "{ normalize: 'NFC' }"],
  ] as const)(
    'does not hold for a service with the rule %s before the setting says so',
    async (way, rule, text) => {
      const found = `the service finds an object by another spelling; set service.externalIds to ${text}`;
      expect(await probe({ externalIds: way })).toMatchObject({ held: 'no', found });
      await world.close();
      expect(await probe({ externalIds: way }, rule)).toMatchObject({ held: 'yes' });
    },
  );

  it('gets a setting proposed by the write probe where only a write shows the spelling', async () => {
    await open({ externalIds: 'lower-case' });
    const { id } = world.sandbox.addObject({ extId: 'room_A', typeId: 'room', fields });
    const [write] = await probeWrite(
      world.destination,
      { number: String(id), externalId: 'room_X' },
      async () => undefined,
    );
    expect(write).toMatchObject({
      held: 'no',
      found: expect.stringContaining(
        "the service knows 'room_A' as 'room_a'; if both ids mean one object, set service.externalIds: { case: 'insensitive' }",
      ),
    });
  });
});

it('the assumption booked-objects holds when a booked object has an external id, else is unknown', async () => {
  await open();
  const probe = async () => {
    const all = await probeAssumptions(world.destination, await world.destination.authenticate());
    return all.find(({ name }) => name === 'booked-objects');
  };
  const now = Math.floor(Date.now() / 1000);
  const book = (objectId: string | number | null) =>
    world.sandbox.addReservation({ begin: now, end: now + 60, objects: [{ typeId: 'room', objectId }] });
  expect(await probe()).toMatchObject({ held: 'unknown' });
  book(null);
  book(1001);
  expect(await probe()).toMatchObject({ held: 'no', found: expect.stringMatching(/^0 of 2 booked/) });
  book('room_A');
  expect(await probe()).toMatchObject({ held: 'yes', found: expect.stringMatching(/^1 of 3 booked/) });
});

it('docs/service-contract.md names every assumption that is checked, and no other', async () => {
  await open();
  const token = await world.destination.authenticate();
  const probed = (await probeAssumptions(world.destination, token)).map(({ name }) => name);
  const page = readFileSync(new URL('../../docs/service-contract.md', import.meta.url), 'utf8');
  const [, assumed = ''] = page.split(/^## Assumed$|^## Limits of an answer$/m);
  const named = assumed
    .split('\n')
    .filter((line) => line.startsWith('|'))
    .flatMap((row) => /^`([a-z-]+)`/.exec(row.split('|').at(-2)?.trim() ?? '')?.[1] ?? []);
  expect([...new Set(named)].toSorted()).toEqual(probed.toSorted());
});

describe('the write probe', () => {
  const probe = async (number: number, externalId = `slotsync_${number}`) =>
    Object.fromEntries(
      (
        await probeWrite(world.destination, { number: String(number), externalId }, async () => undefined)
      ).map((one) => [one.name, one]),
    );

  it('assigns an external id to an object, and leaves its other values as they were', async () => {
    await open({ assignsExternalIds: true });
    const { id } = world.sandbox.addObject({ typeId: 'room', active: false, fields });
    expect(await probe(id)).toMatchObject({
      write: { held: 'yes' },
      replace: {
        held: 'yes',
        found: expect.stringContaining('room.name was left out and became empty; it was put back'),
      },
      'assign-external-ids': { held: 'yes', found: expect.stringContaining(`slotsync_${id}`) },
    });
    expect(world.sandbox.object(id)).toMatchObject({ extId: `slotsync_${id}`, active: false, fields });
    expect(puts()).toHaveLength(3);
  });

  const properties = { members: [{ objectId: 'person_1' }], organization: 'north' };

  it('writes an object that has an external id without its number', async () => {
    await open();
    const object = world.sandbox.putObject({ extId: 'room_1', typeId: 'room', fields, properties });
    expect(await probe(object.id)).toMatchObject({
      write: { held: 'yes' },
      'assign-external-ids': { held: 'unknown' },
    });
    expect(world.sandbox.object('room_1')).toEqual(object);
  });

  it.each([
    [false, false],
    [true, true],
  ])(
    'reports why the service refuses the assignment of an external id (needed: %s)',
    async (assignExternalIds, needed) => {
      await open({}, assignExternalIds);
      const object = world.sandbox.addObject({ typeId: 'room', fields });
      expect(await probe(object.id)).toMatchObject({
        'assign-external-ids': { held: 'no', found: expect.stringContaining('refused'), needed },
      });
      expect(world.sandbox.object(object.id)).toEqual(object);
    },
  );

  it('names the object that was created when the service ignores the number', async () => {
    await open({ assignsExternalIds: 'ignored' });
    const { id } = world.sandbox.addObject({ typeId: 'room', fields });
    const created = `object ${id + 1} was created with the external id slotsync_${id}`;
    expect(await probe(id)).toMatchObject({
      write: { held: 'unknown' },
      'assign-external-ids': { held: 'no', found: expect.stringContaining(created) },
    });
    expect(world.sandbox.unnamedObjects()).toHaveLength(1);
  });

  it('names the fields that the service changed', async () => {
    await open();
    const { id } = world.sandbox.putObject({ extId: 'room_1', typeId: 'room', fields });
    world.sandbox.closeGate({ method: 'PUT', hold: 'answer' });
    const probed = probe(id);
    await expect.poll(() => world.sandbox.gate().held).toBe(1);
    world.sandbox.changeObject(id, { fields: [{ fieldId: 'room.name', values: ['AULA'] }] });
    world.sandbox.openGate();
    expect(await probed).toMatchObject({
      write: { held: 'no', found: expect.stringContaining('room.name') },
    });
  });

  it('names the properties that the service did not take back', async () => {
    await open();
    const { id } = world.sandbox.putObject({ extId: 'room_1', typeId: 'room', fields, properties });
    world.sandbox.closeGate({ method: 'PUT', hold: 'answer' });
    const probed = probe(id);
    await expect.poll(() => world.sandbox.gate().held).toBe(1);
    world.sandbox.changeObject(id, { properties: { organization: 'north' } });
    world.sandbox.openGate();
    expect(await probed).toMatchObject({
      write: { held: 'no', found: expect.stringContaining('differs now in members; it was put back') },
    });
    expect(world.sandbox.object(id)).toMatchObject({ properties });
  });

  it('reports a service that merges, so that a field left out keeps its value', async () => {
    await open({ merges: true });
    const object = world.sandbox.putObject({ extId: 'room_1', typeId: 'room', fields, properties });
    world.destination = { ...world.destination, findLagSeconds: 0 };
    expect(await probe(object.id)).toMatchObject({
      write: { held: 'yes' },
      replace: {
        held: 'no',
        needed: true,
        found: expect.stringContaining('the service merges: room.name was left out and kept its value'),
      },
    });
    expect(world.sandbox.object('room_1')).toEqual(object);
  });

  it.each([
    ['holds where the service merges', 'yes', { merges: true }],
    ['does not hold where the service replaces', 'no', {}],
  ])('finds that the assumption replace, with a patching dialect, %s', async (_, held, sandbox) => {
    await open(sandbox);
    const object = world.sandbox.putObject({ extId: 'room_1', typeId: 'room', fields });
    world.destination = { ...world.destination, findLagSeconds: 0, patches: true };
    expect(await probe(object.id)).toMatchObject({ replace: { held } });
    expect(world.sandbox.object('room_1')).toEqual(object);
  });

  it('leaves the assumption replace open if the service refuses an object without the field', async () => {
    await open();
    const object = world.sandbox.putObject({ extId: 'room_1', typeId: 'room', fields });
    const { putObjects } = world.destination;
    world.destination = {
      ...world.destination,
      putObjects(objects, ...more) {
        const refuses = objects.some((each) => each.fields.length === 0);
        if (refuses) world.sandbox.refuseObject('room_1', { status: 400, message: 'room.name is missing' });
        else world.sandbox.allowObject('room_1');
        return putObjects(objects, ...more);
      },
    };
    expect(await probe(object.id)).toMatchObject({
      replace: {
        held: 'unknown',
        found: expect.stringContaining(
          'without room.name it was not accepted: refused: room.name is missing; it was put back',
        ),
      },
    });
    expect(world.sandbox.object('room_1')).toEqual(object);
  });

  it('reports a lost answer, and writes once', async () => {
    await open();
    const { id } = world.sandbox.putObject({ extId: 'room_1', typeId: 'room', fields });
    world.sandbox.failNext({ method: 'PUT', fault: 'loseAnswer' });
    expect(await probe(id)).toMatchObject({ write: { held: 'no' } });
    expect(puts()).toHaveLength(1);
  });

  it('writes nothing for an unknown number or the external id of another object', async () => {
    await open({ assignsExternalIds: true });
    const { id } = world.sandbox.addObject({ typeId: 'room' });
    world.sandbox.addObject({ typeId: 'room', extId: 'room_1' });
    await expect(probe(99)).rejects.toThrow('the service has no object 99');
    await expect(probe(id, 'room_1')).rejects.toThrow('room_1 is the external id of object');
    expect(puts()).toEqual([]);
  });
});

describe('the command check with a write probe', () => {
  const streams = { rooms: ROOMS, courses: { ...COURSES, fields: {} } };
  type Probe = NonNullable<Parameters<typeof checkAll>[0]['writeProbe']>;
  const confirmed: Omit<Probe, 'number'> = {
    externalId: undefined,
    actor: { by: 'anna', via: 'command' },
    confirm: async () => true,
  };
  /** Returns the findings of `check`, by name. */
  async function checkWith(writeProbe?: Probe, freeze?: FreezeConfig[]) {
    const findings = new Map<string, Finding>();
    const deps = {
      configuration: checkConfiguration({ streams, ...(freeze && { freeze }) }),
      mirror: world.mirror,
      confirmedState: async () => world.state,
      destination: async () => world.destination,
      isQuotaInState: true,
      timeZone: async () => 'Europe/Stockholm',
      writeProbe,
    };
    for await (const finding of checkAll(deps)) findings.set(finding.what, finding);
    return findings;
  }
  /** The finding of `check --write-probe` for a room. */
  async function probeRoom(freeze?: FreezeConfig[], isConfirmed = true) {
    const { id } = world.sandbox.putObject({ extId: 'room_1', typeId: 'room', fields });
    const probe = { ...confirmed, number: String(id), confirm: async () => isConfirmed };
    return (await checkWith(probe, freeze)).get('write probe');
  }
  const probes = () => world.sql`SELECT by, subject FROM slotsync.actions WHERE action = 'probe'`;
  const inAnHour = () => new Date(Date.now() + 3_600_000);
  beforeEach(async () => {
    world = await openWorld({ streams });
    await world.sql`CREATE TABLE rooms (code text, name text)`;
    await world.sql`CREATE TABLE courses (code text, room text)`;
  });

  it('says that nothing was written without the confirmation', async () => {
    expect(await probeRoom([], false)).toMatchObject({
      result: 'fault',
      text: 'it was not confirmed by yes, so nothing was written',
    });
    expect([puts(), await probes()]).toEqual([[], []]);
  });

  it('is refused when the configuration freezes a stream of the type', async () => {
    const freeze = { from: '2026-01-01', to: '2036-01-01', streams: ['rooms'], reason: 'exam weeks' };
    expect(await probeRoom([freeze])).toMatchObject({
      result: 'fault',
      text: 'nothing is written while rooms is frozen, until 2036-01-01 01:00 CET (exam weeks)',
    });
    expect(puts()).toEqual([]);
    // Before a freeze, after it, and while another stream is frozen.
    for (const other of [
      { ...freeze, from: '2035-01-01' },
      { ...freeze, to: '2026-01-02' },
      { ...freeze, streams: ['courses'] },
    ])
      expect(await probeRoom([other])).toMatchObject({ result: 'ok' });
    expect(await probes()).toMatchObject([1, 2, 3].map(() => ({ by: 'anna', subject: 'object 1001' })));
  });

  it('is refused when an operator has frozen a stream of the type, or all streams', async () => {
    const { db } = world.state;
    const freeze = (names: string[] | null) =>
      freezeStreams(db, { streams: names, endsAt: inAnHour(), reason: 'exam weeks', by: null });
    await freeze(['courses']);
    expect(await probeRoom()).toMatchObject({ result: 'ok' });
    world.sandbox.clearArrivals();
    await freeze(null);
    expect(await probeRoom()).toMatchObject({
      result: 'fault',
      remedy: 'Run it again then. To end the freeze: slotsync unfreeze rooms',
    });
    expect(puts()).toEqual([]);
  });

  it('is refused for the object of an excepted record', async () => {
    const { db } = world.state;
    await world.sql`INSERT INTO rooms VALUES ('1', 'Room 1')`;
    await world.sync();
    world.sandbox.clearArrivals();
    await db.transaction((tx) =>
      exceptRecords(tx, { stream: 'rooms', keys: ['1'], until: null, reason: 'the caretaker', by: null }),
    );
    expect(await probeRoom()).toMatchObject({
      result: 'fault',
      text: expect.stringContaining("is that of rooms '1', which an exception leaves as it is") as string,
    });
    expect(puts()).toEqual([]);
  });

  it('assigns the external id of the link to an object that is linked, and no other one', async () => {
    await world.close();
    const sandbox = { assignsExternalIds: true };
    world = await openWorld({ streams: { rooms: ROOMS }, service: { assignExternalIds: true } }, { sandbox });
    await world.sql`CREATE TABLE rooms (code text, name text)`;
    await world.sql`CREATE TABLE courses (code text, name text, room text)`;
    await world.sql`INSERT INTO rooms VALUES ('A', 'Room A')`;
    const { id } = world.sandbox.addObject({ extId: null, typeId: 'room', fields });
    const number = String(id);
    const link = { stream: 'rooms', localKey: 'A', externalId: 'room_A', destinationId: number } as const;
    await linkRecords(world.state, [{ ...link, assignsId: true, linkedBy: 'match', fields: null }]);
    const refused = await checkWith({ ...confirmed, number, externalId: 'room_X' });
    expect(refused.get('write probe')).toMatchObject({
      result: 'fault',
      text: `object ${number} is linked to rooms 'A', with the external id 'room_A': leave out --external-id`,
    });
    expect(puts()).toEqual([]);
    const probed = await checkWith({ ...confirmed, number });
    expect(probed.get('assumed: assign-external-ids')).toMatchObject({ result: 'ok' });
    await world.sync();
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced' });
    expect(world.sandbox.objects()).toMatchObject([{ id, extId: 'room_A' }]);
  });

  it('is proposed until the service has accepted objects, or a probe was made', async () => {
    const textOf = async (name: string) => (await checkWith()).get(`assumed: ${name}`)?.text;
    expect(await textOf('write')).toContain('--write-probe');
    await world.sql`INSERT INTO rooms VALUES ('1', 'Room 1')`;
    await world.sync();
    expect(await textOf('write')).toBe('the service has accepted objects');
    expect(await textOf('replace')).toContain('--write-probe');
    await probeRoom();
    expect(await textOf('replace')).toBe('a write probe was made before: slotsync actions');
  });
});
