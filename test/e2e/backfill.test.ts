// Guarantee 8
// Backfill as an operator runs it: a part of the mirror, interrupted and resumed, beside other runs. refused-inputs.test.ts has
// the parts that cannot start.
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { CONFIGURATION, type Rehearsal } from '../support/rehearsal.js';
import { rehearseEach, rehearseOnce } from '../support/rehearsals.js';
import { until } from '../support/wait.js';

const ids = ({ sandbox }: Rehearsal) =>
  sandbox
    .objects()
    .map(({ extId }) => extId)
    .toSorted();
const sent = (world: Rehearsal) => world.puts().reduce((sum, { objects }) => sum + (objects ?? 0), 0);

describe('a backfill of a part of a stream', () => {
  const world = rehearseEach({ rows: 30, sandbox: { rate: 0 } });
  // Polls rooms by their seats. Any column that grows is a cursor.
  beforeEach(() =>
    world.configure(CONFIGURATION.replace("from: 'rooms',", "from: 'rooms', cursor: 'seats',")),
  );

  it('sends the rows of a range of the cursor, of keys, of a file of keys, and of a condition', async () => {
    await world.ends('backfill rooms --from 5 --to 8', 0, 'Asked for: from 5, before 8\n', /Run 1 succeeded/);
    expect(ids(world)).toEqual(['room_R5', 'room_R6', 'room_R7']);
    const [run] = await world.sql`SELECT kind, lane, range FROM slotsync.runs`;
    expect(run).toEqual({ kind: 'backfill', lane: 'backfill', range: { from: '5', to: '8' } });
    await world.read(['backfill', 'rooms', '--keys', 'R1, R2']);
    await writeFile(path.join(world.folder, 'keys.txt'), 'R3\r\nR4\n\nR3\n');
    await world.read('backfill rooms --keys-file keys.txt');
    await world.read(['backfill', 'rooms', '--where', "seats > 29 OR name = 'Sal 9'"]);
    const codes = ['R1', 'R2', 'R3', 'R30', 'R4', 'R5', 'R6', 'R7', 'R9'];
    expect(ids(world)).toEqual(codes.map((code) => `room_${code}`));
  });

  it('names unknown keys and ends with exit code 1, and sends the known keys', async () => {
    const unknown = '6 of 8 keys have neither row nor record: X1, X2, X3, X4, X5, …\n';
    await world.ends('backfill rooms --keys R1,R2,X1,X2,X3,X4,X5,X6', 1, unknown);
    expect(ids(world)).toEqual(['room_R1', 'room_R2']);
    await world.ends('backfill rooms --keys X1', 1, /^1 of 1 key has neither row nor record: X1\n$/);
    expect(await world.json('backfill rooms --keys R1,X1 --json')).toMatchObject({
      unknownKeys: ['X1'],
      run: { status: 'succeeded' },
    });
  });

  it('neither deactivates an object nor deletes a record', async () => {
    await world.read('sync');
    await world.sql`DELETE FROM courses`;
    await world.sql`DELETE FROM rooms WHERE code = 'R3'`;
    for (const part of ['', ' --keys R3,R4', ' --where true', ' --force', ' --limit 5'])
      await world.ends(`backfill rooms${part}`, 0, 'succeeded');
    expect(world.sandbox.object('room_R3')?.active).toBe(true);
    await world.read('sync rooms --limit 5');
    expect(world.sandbox.object('room_R3')?.active).toBe(true);
    await world.read('sync rooms');
    expect(world.sandbox.object('room_R3')?.active).toBe(false);
  });

  it('fails rows with the same external id only if they are in the part', async () => {
    await world.configure(CONFIGURATION.replace('room_{code}', 'room_{seats}'));
    await world.sql`UPDATE rooms SET seats = 3 WHERE code = 'R4'`;
    await world.read(['backfill', 'rooms', '--where', 'seats > 20']);
    const shared = "of 'R3': external id 'room_3' is also that of R4";
    await world.ends(['backfill', 'rooms', '--where', 'seats < 5'], 1, shared);
    expect(world.sandbox.objects()).toHaveLength(12);
  });

  it('sends no more records than --limit, as sync and plan do, and unchanged rows only with --force', async () => {
    const plan = await world.json<{ streams: { requests: number }[] }>('plan --limit 25 --json');
    expect(plan.streams.map(({ requests }) => requests)).toEqual([4, 0]);
    for (const [command, count] of [
      ['backfill --limit 25', 25],
      ['sync --limit 10', 35],
      ['backfill', 60],
      ['backfill rooms --keys R1,R2', 60],
      ['backfill rooms --keys R1,R2 --force', 62],
    ] as const) {
      await world.read(command);
      expect(sent(world), command).toBe(count);
    }
  });

  it('is refused when its condition calls a function that writes', async () => {
    await world.sql`CREATE FUNCTION empty_rooms() RETURNS boolean LANGUAGE sql AS 'DELETE FROM rooms; SELECT true'`;
    const refusal = 'cannot execute DELETE in a read-only transaction';
    await world.ends('backfill rooms --where empty_rooms()', 2, refusal);
    expect(await world.sql`SELECT count(*)::int AS count FROM rooms`).toEqual([{ count: 30 }]);
  });
});

describe('the run of a backfill', () => {
  const rows = 200;
  const world = rehearseOnce({ rows });
  const BACKFILL = 'backfill rooms courses --concurrency 4';

  it('keeps its position after Ctrl-C, and is continued by the next backfill', async () => {
    await world.ends(
      'backfill --resume',
      0,
      /^No backfill is unfinished, so there is nothing to resume\.\n$/,
    );
    world.holdWrites(3);
    const interrupted = world.start(BACKFILL.split(' '));
    await world.untilHeld();
    interrupted.child.kill('SIGINT');
    await world.untilStopping(interrupted);
    world.sandbox.openGate();
    const stopped = await interrupted.finished;
    expect(stopped.stderr).toContain('To continue: slotsync backfill --resume');
    expect(stopped.code).toBe(1);

    await world.ends(BACKFILL, 0, 'Run 1 is unfinished. Continuing it.', /Run 1 succeeded/);
    expect(await world.sql`SELECT id, kind, status FROM slotsync.runs`).toEqual([
      { id: '1', kind: 'backfill', status: 'succeeded' },
    ]);
    expect(world.sandbox.objects()).toHaveLength(2 * rows);
    expect(sent(world)).toBe(2 * rows);
    expect(world.sandbox.mostInAnySecond()).toBeLessThanOrEqual(20);
  });

  it('begins after an unfinished run over the same streams, which the command finishes', async () => {
    await world.sql`UPDATE rooms SET name = name || ' A'`;
    await world.read('sync rooms --detach');
    const first = 'Run 2 over the same streams is unfinished. Finishing it first.';
    await world.ends('backfill rooms --keys R1 --force', 0, first, /Run 3 succeeded/);
    expect(world.sandbox.object('room_R7')?.fields[0]?.values).toEqual(['Sal 7 A']);
  });

  it('is resumed whatever part it has', async () => {
    await world.read('backfill rooms --keys R1,R2 --force --detach');
    await world.ends('backfill --resume', 0, 'Run 4 is unfinished. Continuing it.', /Run 4 succeeded/);
    const { runs } = await world.json<{ runs: { id: number }[] }>('runs --kind backfill --json');
    expect(runs.map(({ id }) => id)).toEqual([4, 3, 1]);
  });

  it('shows its pace outside a terminal', async () => {
    await world.sql`UPDATE rooms SET name = name || ' B'`;
    world.holdWrites(1); // it is not over before it has a pace to show
    const slow = world.start(['backfill', 'rooms', '--concurrency', '1']);
    await until(
      () => /run 5: .* left, \d+ %, \d+ of 200 records, \d+ a second, \d+ % of the quota/.test(slow.output()),
      { describe: () => `a line of progress: ${slow.output()}` },
    );
  });
});
