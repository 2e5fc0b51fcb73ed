// Guarantee 10
// A room gets another code: the program names the former object, creates the new object, and deactivates the former object
// when an operator asks for it.
import { beforeEach, expect, it } from 'vitest';
import { CONFIGURATION } from '../support/rehearsal.js';
import { rehearseEach } from '../support/rehearsals.js';

const world = rehearseEach({ rows: 3, sandbox: { rate: 0 } });
beforeEach(() => world.configure(CONFIGURATION.replace('room_{code}', 'room_{seats}')));
const isActive = (extId: string) => world.sandbox.object(extId)?.active;

it('a former object is shown on every surface, and one command deactivates it', async () => {
  await world.read('sync');
  await world.sql`UPDATE rooms SET seats = 77 WHERE code = 'R1'`;
  await world.ends('sync', 1);
  await world.ends(
    'failures',
    0,
    "the service knows this record as 'room_1', but its row now has 'room_77'",
    'slotsync retry rooms R1 --retire-former',
  );

  await world.read('retry rooms R1');
  await world.read('sync');
  expect([isActive('room_1'), isActive('room_77')]).toEqual([true, true]);
  const left = '1 former object of records whose external id changed is not deactivated';
  const retire = 'slotsync retry --all --retire-former';
  expect(await world.read('failures')).toBe(
    `Every record is in sync as of the last plan.\n${left}: ${retire}\n`,
  );
  await world.ends('status --full', 0, `${left}\n    → ${retire}`);
  const former = /Former object room_1: number \d+, active; to deactivate it: slotsync retry rooms R1 --/;
  // Its external id leads to the record that had it, too.
  for (const name of ['R1', 'room_1']) await world.ends(`explain rooms ${name}`, 0, former);
  expect(await world.json('failures --json')).toMatchObject({ formerObjects: 1 });

  expect(await world.read('retry rooms R1 --retire-former')).toBe(
    '1 former object will be deactivated by the next run, within the limits: slotsync sync\n',
  );
  await world.read('sync');
  expect([isActive('room_1'), isActive('room_2'), isActive('room_77')]).toEqual([false, true, true]);
  expect(await world.read('failures')).toBe('Every record is in sync as of the last plan.\n');
  await world.ends(
    'retry rooms R1 R2 --retire-former',
    1,
    "rooms 'R2' has no former object, is being written, or is an exception; it was not changed.",
  );
  await world.refuses(
    'retry courses --retire-former',
    "stream courses has retire: 'keep', so its objects are never deactivated",
    '→ Deactivate the object at the service',
  );
});
