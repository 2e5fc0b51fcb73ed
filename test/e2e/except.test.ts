// Exceptions by command: made, changed, listed and ended. refused-inputs.test.ts has those that are refused.
import { expect, it } from 'vitest';
import { rehearseEach } from '../support/rehearsals.js';

const world = rehearseEach({ rows: 3, sandbox: { rate: 0 } });
const name = () => world.sandbox.object('room_R1')?.fields[0]?.values;

it('except makes an exception that every surface shows, keeps its record as it is, and ends it', async () => {
  await world.read('sync');
  const except = (...more: string[]) => ['except', 'rooms', 'R1', ...more];
  await world.ends(
    except('--reason', 'the caretaker names it', '--until', '2099-01-01'),
    0,
    /^Left as it is until 2099-01-01 00:00 \w+: 1 record of rooms\. A request in progress is answered\.\nTo end it: slotsync except rooms <key> --end\n$/,
  );
  await world.sql`UPDATE rooms SET name = 'new'`;

  const kept = '1 exception: slotsync does not change this record.';
  await world.ends('plan', 0, `rooms: ${kept} To list it: slotsync exceptions`);
  await world.read('sync');
  expect(name()).toEqual(['Sal 1']);
  await world.ends('status --full', 0, kept);
  await world.ends('failures', 0, '1 exception');
  await world.ends(
    'explain rooms R1',
    0,
    'no action needed: an exception protects the object. To end the exception: slotsync except rooms R1 --end',
    'the caretaker names it',
  );

  await world.refuses(
    except('--reason', 'again'),
    "rooms 'R1' is an exception since ",
    'To change its end and reason, add --until. To end the exception: --end',
  );
  const former = '(the caretaker names it).\n';
  await world.ends(except('--reason', 'longer', '--until', '2098-01-01'), 0, former);
  const { exceptions } = await world.json('exceptions --json');
  expect(exceptions).toMatchObject([{ stream: 'rooms', localKey: 'R1', reason: 'longer' }]);
  await world.ends('exceptions', 0, 'longer');

  expect(await world.read(except('--end'))).toBe(
    '1 exception of rooms ended. The key is in the inbox; without a worker: slotsync sync rooms\n',
  );
  await world.ends('exceptions', 0, 'There are no exceptions.');
  await world.read('sync');
  expect(name()).toEqual(['new']);
  await world.ends('actions', 0, "made exceptions of rooms 'R1'", "ended the exceptions of rooms 'R1'");
});
