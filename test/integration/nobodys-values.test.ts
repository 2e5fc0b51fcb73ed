// Guarantee 4
// Values at the service that no person entered, though they differ from the mirror's: what an older reading shows, what a write left
// that was not accepted, what was sent since a backup of the state. No rule of a field keeps them.
import { describe, expect, it } from 'vitest';
import type { FieldRuleConfig } from '../../src/streams/config-schema.js';
import { keepRoomWorlds, nameAtService, rename, rooms } from '../support/room-worlds.js';
import type { WorldOptions } from '../support/world.js';

const openWorld = keepRoomWorlds();

const fieldsOf = (rule: FieldRuleConfig) => ({
  'room.name': { from: 'name', ...rule },
  'room.seats': 'seats',
});
const ruled = (rule: FieldRuleConfig = { write: 'changed' }) => rooms({ fields: fieldsOf(rule) });
const open = (config = ruled(), options: WorldOptions = {}) =>
  openWorld(config, { ...options, synced: ['A'] });

describe('write that was carried out and not accepted', () => {
  it('leaves no value for a person’s when the row is back as it was', async () => {
    let isContradicting = false;
    const world = await open(ruled(), {
      dialect: (base) => ({
        write: {
          ...base.write,
          read: (body, sent, status) =>
            base.write
              .read(body, sent, status)
              .map((one) => (isContradicting ? { ...one, extId: 'another' } : one)),
        },
      }),
    });
    await rename(world, 'A', 'Aula');
    isContradicting = true;
    await world.sync();
    expect(nameAtService(world, 'A')).toBe('Aula');
    isContradicting = false;
    await rename(world, 'A', 'Room A');
    for (let rounds = 0; rounds < 3; rounds++) {
      await world.sync();
      await world.passLateWrites();
      await world.drainInbox();
    }
    expect(nameAtService(world, 'A')).toBe('Room A');
  });
});
