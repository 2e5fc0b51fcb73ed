// What a row, a key or the service says may hold characters that a terminal obeys. Every command shows them.
import { afterAll, beforeAll, expect, it } from 'vitest';
import { visible } from '../../src/visible-text.js';
import { rehearse, type Rehearsal } from '../support/rehearsal.js';

const OBEYED = '\x1b]0;x\x07\u202E\x9b2J\x7f';
const SHOWN = String.raw`\u001b]0;x\u0007\u202e\u009b2J\u007f`;

let world: Rehearsal;
beforeAll(async () => {
  world = await rehearse({ rows: 2, sandbox: { rate: 0 } });
  await world.sql`INSERT INTO rooms VALUES (${`K${OBEYED}`}, ${`Name${OBEYED}`}, 1)`;
  world.sandbox.refuseObject('room_R1', { status: 400, message: `refused ${OBEYED}` });
});
afterAll(() => world.close());

/** Each command, and whether it shows a text of the row, of its key or of the service. */
const COMMANDS: [args: string[], shows: boolean][] = [
  [['plan'], true],
  [['sync', 'rooms'], true],
  [['status'], false],
  [['runs'], false],
  [['runs', '1'], true],
  [['failures'], true],
  [['explain', 'rooms', `K${OBEYED}`], true],
  [['push', 'rooms', `no${OBEYED}`], true],
  [['retry', `no${OBEYED}`, 'R1'], true],
  [[`no${OBEYED}`], true],
  [['status', `--no${OBEYED}`], true],
  [['triggers', 'print'], false],
  [['reconcile', `--from=${OBEYED}`], true],
];

const titled = COMMANDS.map(([args, shows]) => ({ title: visible(args.join(' ')), args, shows }));
it.each(titled)('controls: $title shows them', async ({ args, shows }) => {
  for (const json of [[], ['--json']]) {
    const { stdout, stderr } = await world.run([...args, ...json]);
    for (const printed of [stdout, stderr]) expect(printed).not.toMatch(/(?!\n)[\p{Cc}\p{Bidi_Control}]/u);
    if (json.length === 0 && shows) expect(stdout + stderr).toContain(SHOWN);
    if (json.length > 0 && stdout !== '') JSON.parse(stdout);
  }
});
