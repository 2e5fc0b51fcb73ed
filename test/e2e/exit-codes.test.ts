// Guarantee 11
// Exit codes of all commands: 0 done, 1 something failed, 2 wrong use or configuration, 3 held for approval.
import { expect, it } from 'vitest';
import { rehearseOnce } from '../support/rehearsals.js';

const world = rehearseOnce({ rows: 30, sandbox: { rate: 0 } });

/** Events between two commands. */
const events = {
  'a row changes': () => world.sql`UPDATE rooms SET seats = 99 WHERE code = 'R1'`,
  'the service refuses an object': () =>
    world.sandbox.refuseObject('room_R1', { status: 400, message: 'no' }),
  'too many rows are gone': () => world.sql`DELETE FROM rooms WHERE code > 'R15'`,
  'a record was given up in an earlier night': () =>
    world.sql`UPDATE slotsync.records SET status = 'dead', refused_hash = source_hash WHERE local_key = 'R2'`,
  'it is in sync again': () =>
    world.sql`UPDATE slotsync.records SET status = 'synced', refused_hash = NULL WHERE local_key = 'R2'`,
  'an object is changed at the service': () =>
    world.sandbox.changeObject('room_R10', { fields: [{ fieldId: 'room.name', values: ['Aula'] }] }),
  'a table is gone': () => world.sql`ALTER TABLE rooms RENAME TO halls`,
} as const;

/** The story of an installation from its first command on. A step is an event, or a command with its exit code. */
const STORY: (keyof typeof events | [args: string, code: number])[] = [
  ['migrate', 0],
  ['check', 0],
  ['plan', 0],
  ['plan nothing', 2],
  ['sync', 0],
  ['sync --concurrency none', 2],
  ['plan', 0],
  ['status', 0],
  ['runs 99', 2],
  ['failures', 0],
  ['alerts', 0],
  ['alerts check', 0],
  ['alerts test', 2],
  ['alerts explode', 2],
  ['report', 0],
  ['report 99', 2],
  ['report --since never', 2],
  ['explain rooms R1', 0],
  ['explain rooms nobody', 1],
  ['push rooms R1', 0],
  ['push rooms nobody', 1],
  ['triggers print', 0],
  ['triggers explode', 2],
  ['retry --all', 0],
  ['retry', 2],
  ['pause', 0],
  ['resume', 0],
  ['freeze rooms', 2],
  ['freeze rooms --until 2099-01-01 --reason exams', 0],
  ['unfreeze rooms', 0],
  ['except rooms R1', 2],
  ['except rooms R1 --reason hand --until 2001-01-01', 2],
  ['except rooms nobody --reason hand', 2],
  ['except nothing R1 --reason hand', 2],
  ['except rooms R1 --reason hand', 0],
  ['except rooms R1 --reason again', 2],
  ['except rooms R1 --reason again --until 2099-01-01', 0],
  ['exceptions', 0],
  ['take rooms R1', 2],
  ['history rooms R1', 0],
  ['history nothing R1', 2],
  ['except rooms R1 --end', 0],
  ['except rooms R1 --end', 2],
  ['actions', 0],
  ['actions --since never', 2],
  ['cancel 1', 2],
  ['backfill rooms --keys R1', 0],
  ['bogus', 2],
  ['sync --strict', 0],
  'a record was given up in an earlier night',
  ['sync', 0],
  ['sync --strict', 1],
  ['sync courses --strict', 0],
  ['sync --strict --detach', 2],
  'it is in sync again',
  'too many rows are gone',
  ['plan', 3],
  ['sync', 3],
  ['reject 7', 0],
  ['approve 7', 0],
  'a row changes',
  'the service refuses an object',
  ['sync courses', 0],
  ['sync', 1],
  ['reconcile', 0],
  ['discover', 0],
  ['init --yes --out new.config.ts', 0],
  ['init --yes --out new.config.ts', 2],
  ['match', 0],
  ['match --apply none.csv', 2],
  ['rename rooms R10 R11', 2],
  ['forget rooms nobody', 1],
  ['verify', 0],
  'an object is changed at the service',
  ['verify', 1],
  ['verify --repair', 0],
  ['verify', 0],
  ['verify --sample none', 2],
  'a table is gone',
  ['plan', 2],
  ['check', 2],
  ['reset', 2],
  ['reset --yes', 0],
  ['status', 2],
];

it('every command ends with its documented exit code', async () => {
  const ended: string[] = [];
  for (const step of STORY) {
    if (typeof step === 'string') {
      await events[step]();
      continue;
    }
    const [args] = step;
    ended.push(`${args}: ${(await world.run(args.split(' '))).code}`);
  }
  expect(ended).toEqual(
    STORY.flatMap((step) => (typeof step === 'string' ? [] : [`${step[0]}: ${step[1]}`])),
  );
});

it('every command that ends without being stopped has a step in this test', async () => {
  const [, listed = ''] = (await world.read('--help')).split('Commands:');
  const commands = [...listed.matchAll(/^ {2}([a-z]+)/gm)].map(([, name]) => name ?? '');
  const told = new Set(STORY.flatMap((step) => (typeof step === 'string' ? [] : step[0].split(' ')[0])));
  expect(commands.filter((name) => !told.has(name))).toEqual(['demo', 'worker', 'page', 'sandbox', 'help']);
});
