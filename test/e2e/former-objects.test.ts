// Guarantee 10
// A room gets another code: the program names the former object, creates the new object, and deactivates the former object
// when an operator asks for it.
import { afterEach, beforeEach, expect, it } from 'vitest';
import { CONFIGURATION, rehearse, type Rehearsal } from '../support/rehearsal.js';

let world: Rehearsal;
beforeEach(async () => {
  world = await rehearse({ rows: 3, sandbox: { rate: 0 } });
  await world.configure(CONFIGURATION.replace('room_{code}', 'room_{seats}'));
});
afterEach(() => world.close());

async function stdoutOf(...args: string[]): Promise<string> {
  return (await world.run(args)).stdout;
}
const isActive = (extId: string) => world.sandbox.object(extId)?.active;

it('a former object is shown on every surface, and one command deactivates it', async () => {
  await world.run(['sync']);
  await world.sql`UPDATE rooms SET seats = 77 WHERE code = 'R1'`;
  expect((await world.run(['sync'])).code).toBe(1);
  const dead = await stdoutOf('failures');
  expect(dead).toContain("the service knows this record as 'room_1', but its row now has 'room_77'");
  expect(dead).toContain('slotsync retry rooms R1 --retire-former');

  await world.run(['retry', 'rooms', 'R1']);
  expect((await world.run(['sync'])).code).toBe(0);
  expect([isActive('room_1'), isActive('room_77')]).toEqual([true, true]);
  const left = '1 former object of records whose external id changed is not deactivated';
  expect(await stdoutOf('failures')).toBe(
    `Every record is in sync as of the last plan.\n${left}: slotsync retry --all --retire-former\n`,
  );
  expect(await stdoutOf('status', '--full')).toContain(`${left}\n    → slotsync retry --all --retire-former`);
  const explained = await stdoutOf('explain', 'rooms', 'R1');
  expect(explained).toMatch(
    /Former object room_1: number \d+, active; to deactivate it: slotsync retry rooms R1 --/,
  );
  const { formerObjects } = JSON.parse(await stdoutOf('failures', '--json')) as { formerObjects: number };
  expect(formerObjects).toBe(1);

  const retried = await world.run(['retry', 'rooms', 'R1', '--retire-former']);
  expect(retried).toMatchObject({
    code: 0,
    stdout: '1 former object will be deactivated by the next run, within the limits: slotsync sync\n',
  });
  expect((await world.run(['sync'])).code).toBe(0);
  expect([isActive('room_1'), isActive('room_2'), isActive('room_77')]).toEqual([false, true, true]);
  expect(await stdoutOf('failures')).toBe('Every record is in sync as of the last plan.\n');

  const again = await world.run(['retry', 'rooms', 'R1', 'R2', '--retire-former']);
  expect(again.code).toBe(1);
  expect(again.stdout).toContain(
    "rooms 'R2' has no former object, is being written, or is an exception; it was not changed.",
  );
});

it('a former object of a stream that retires nothing is not deactivated, with advice', async () => {
  const { code, stderr } = await world.run(['retry', 'courses', '--retire-former']);
  expect(code).toBe(2);
  expect(stderr).toContain("stream courses has retire: 'keep', so its objects are never deactivated");
  expect(stderr).toContain('→ Deactivate the object at the service');
});
