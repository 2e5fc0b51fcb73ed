// Guarantee 8
// Backfill as an operator runs it: a part of the mirror, interrupted and resumed, beside other runs.
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { CONFIGURATION, rehearse, type Rehearsal } from '../support/rehearsal.js';
import { until } from '../support/wait.js';

/** Polls rooms by their seats. Any column that grows is a cursor. */
const WITH_CURSOR = CONFIGURATION.replace("from: 'rooms',", "from: 'rooms', cursor: 'seats',");

const ids = ({ sandbox }: Rehearsal) =>
  sandbox
    .objects()
    .map(({ extId }) => extId)
    .toSorted();
const sent = (world: Rehearsal) => world.puts().reduce((sum, { objects }) => sum + (objects ?? 0), 0);

describe('a backfill of a part of a stream', () => {
  let world: Rehearsal;
  beforeEach(async () => {
    world = await rehearse({ rows: 30, sandbox: { rate: 0 } });
    await world.configure(WITH_CURSOR);
  });
  afterEach(() => world.close());

  it('sends the rows between two values of the cursor, without the second value', async () => {
    const { code, stdout } = await world.run(['backfill', 'rooms', '--from', '5', '--to', '8']);
    expect(stdout).toContain('Asked for: from 5, before 8\n');
    expect(stdout).toMatch(/Run 1 succeeded/);
    expect(code).toBe(0);
    expect(ids(world)).toEqual(['room_R5', 'room_R6', 'room_R7']);
    const [run] = await world.sql`SELECT kind, lane, range FROM slotsync.runs`;
    expect(run).toEqual({ kind: 'backfill', lane: 'backfill', range: { from: '5', to: '8' } });
  });

  it('sends the rows of given keys, of a file of keys, and of a condition', async () => {
    expect((await world.run(['backfill', 'rooms', '--keys', 'R1, R2'])).code).toBe(0);
    await writeFile(path.join(world.folder, 'keys.txt'), 'R3\r\nR4\n\nR3\n');
    expect((await world.run(['backfill', 'rooms', '--keys-file', 'keys.txt'])).code).toBe(0);
    expect((await world.run(['backfill', 'rooms', '--where', "seats > 29 OR name = 'Sal 9'"])).code).toBe(0);
    expect(ids(world)).toEqual(['room_R1', 'room_R2', 'room_R3', 'room_R30', 'room_R4', 'room_R9']);
  });

  it('names unknown keys and ends with exit code 1, and sends the known keys', async () => {
    const { code, stdout } = await world.run(['backfill', 'rooms', '--keys', 'R1,R2,X1,X2,X3,X4,X5,X6']);
    expect(stdout).toContain('6 of 8 keys have neither row nor record: X1, X2, X3, X4, X5, …\n');
    expect(code).toBe(1);
    expect(ids(world)).toEqual(['room_R1', 'room_R2']);
    const none = await world.run(['backfill', 'rooms', '--keys', 'X1']);
    expect(none.stdout).toBe('1 of 1 key has neither row nor record: X1\n');
    expect(none.code).toBe(1);
    const json = await world.run(['backfill', 'rooms', '--keys', 'R1,X1', '--json']);
    expect(JSON.parse(json.stdout)).toMatchObject({ unknownKeys: ['X1'], run: { status: 'succeeded' } });
  });

  it('neither deactivates an object nor deletes a record', async () => {
    await world.run(['sync']);
    await world.sql`DELETE FROM courses`;
    await world.sql`DELETE FROM rooms WHERE code = 'R3'`;
    for (const part of [[], ['--keys', 'R3,R4'], ['--where', 'true'], ['--force'], ['--limit', '5']]) {
      const { code, stdout } = await world.run(['backfill', 'rooms', ...part]);
      expect(`${stdout} ${code}`).toMatch(/succeeded .* 0$/s);
    }
    expect(world.sandbox.object('room_R3')?.active).toBe(true);
    expect((await world.run(['sync', 'rooms', '--limit', '5'])).code).toBe(0);
    expect(world.sandbox.object('room_R3')?.active).toBe(true);
    expect((await world.run(['sync', 'rooms'])).code).toBe(0);
    expect(world.sandbox.object('room_R3')?.active).toBe(false);
  });

  it('fails rows with the same external id only if they are in the part', async () => {
    await world.configure(CONFIGURATION.replace('room_{code}', 'room_{seats}'));
    await world.sql`UPDATE rooms SET seats = 3 WHERE code = 'R4'`;
    expect((await world.run(['backfill', 'rooms', '--where', 'seats > 20'])).code).toBe(0);
    const { code, stdout } = await world.run(['backfill', 'rooms', '--where', 'seats < 5']);
    expect(stdout).toContain("of 'R3': external id 'room_3' is also that of R4");
    expect(code).toBe(1);
    expect(world.sandbox.objects()).toHaveLength(12);
  });

  it('sends unchanged rows only with --force', async () => {
    await world.run(['sync']);
    world.sandbox.clearArrivals();
    await world.run(['backfill', 'rooms', '--keys', 'R1,R2']);
    expect(sent(world)).toBe(0);
    expect((await world.run(['backfill', 'rooms', '--keys', 'R1,R2', '--force'])).code).toBe(0);
    expect(sent(world)).toBe(2);
  });

  it('sends no more records than --limit, as sync and plan do', async () => {
    const plan = JSON.parse((await world.run(['plan', '--limit', '25', '--json'])).stdout) as {
      streams: { requests: number }[];
    };
    expect(plan.streams.map(({ requests }) => requests)).toEqual([4, 0]);
    await world.run(['backfill', '--limit', '25']);
    expect(sent(world)).toBe(25);
    await world.run(['sync', '--limit', '10']);
    expect(sent(world)).toBe(35);
    await world.run(['backfill']);
    expect(sent(world)).toBe(60);
  });
});

describe('a backfill that cannot start', () => {
  let world: Rehearsal;
  beforeAll(async () => {
    world = await rehearse({ rows: 30, sandbox: { rate: 0 } });
    await world.configure(WITH_CURSOR);
  });
  afterAll(() => world.close());

  it('says that there is nothing to resume', async () => {
    const { code, stdout } = await world.run(['backfill', '--resume']);
    expect(stdout).toBe('No backfill is unfinished, so there is nothing to resume.\n');
    expect(code).toBe(0);
  });

  it.each([
    [
      ['--from', '5'],
      'courses has no cursor, so --from and --to do not apply: set streams.courses.cursor, or use --where instead',
    ],
    [['--where', 'true'], '--where applies to one stream: name the stream'],
    [['rooms', '--keys', 'R1', '--keys-file', 'x'], 'use --keys or --keys-file, not both'],
    [['rooms', '--from', 'soon'], '--from, for rooms: invalid input syntax for type integer: "soon"'],
    [['rooms', '--to', 'later'], '--to, for rooms: invalid input syntax for type integer: "later"'],
    [['rooms', '--where', 'seat > 1'], '--where, for rooms: column "seat" does not exist'],
    [['rooms', '--where', 'seats >'], '--where, for rooms: syntax error at or near ")"'],
    [
      ['rooms', '--where', 'true); COMMIT; DROP TABLE rooms; SELECT (1'],
      '--where, for rooms: cannot insert multiple commands into a prepared statement',
    ],
    [['rooms', '--where', 'true) UNION (SELECT 1'], '--where, for rooms: syntax error'],
    [['rooms', '--resume'], '--resume continues the latest unfinished backfill'],
  ])('is refused in one line, before a run exists: %j', async (args, message) => {
    const { code, stderr } = await world.run(['backfill', ...args]);
    expect(stderr).toContain(`slotsync: ${message}`);
    expect(
      stderr
        .trim()
        .split('\n')
        .filter((line) => !line.startsWith('  →')),
    ).toHaveLength(1);
    expect(code).toBe(2);
    expect(await world.sql`SELECT id FROM slotsync.runs`).toEqual([]);
    expect(await world.sql`SELECT count(*)::int AS count FROM rooms`).toEqual([{ count: 30 }]);
  });

  it('is refused when its condition calls a function that writes', async () => {
    await world.sql`CREATE FUNCTION empty_rooms() RETURNS boolean LANGUAGE sql AS 'DELETE FROM rooms; SELECT true'`;
    const { code, stdout } = await world.run(['backfill', 'rooms', '--where', 'empty_rooms()']);
    expect(stdout).toContain('cannot execute DELETE in a read-only transaction');
    expect(code).toBe(2);
    expect(await world.sql`SELECT count(*)::int AS count FROM rooms`).toEqual([{ count: 30 }]);
  });
});

describe('the run of a backfill', () => {
  const rows = 200;
  let world: Rehearsal;
  beforeAll(async () => {
    world = await rehearse({ rows });
  });
  afterAll(() => world.close());

  const BACKFILL = ['backfill', 'rooms', 'courses', '--concurrency', '4'];

  it('keeps its position after Ctrl-C, and is continued by the next backfill', async () => {
    world.holdWrites(3);
    const interrupted = world.start(BACKFILL);
    await world.untilHeld();
    interrupted.child.kill('SIGINT');
    await world.untilStopping(interrupted);
    world.sandbox.openGate();
    const stopped = await interrupted.finished;
    expect(stopped.stderr).toContain('To continue: slotsync backfill --resume');
    expect(stopped.code).toBe(1);

    const { code, stdout } = await world.run(BACKFILL);
    expect(stdout).toContain('Run 1 is unfinished. Continuing it.');
    expect(stdout).toMatch(/Run 1 succeeded/);
    expect(code).toBe(0);
    expect(await world.sql`SELECT id, kind, status FROM slotsync.runs`).toEqual([
      { id: '1', kind: 'backfill', status: 'succeeded' },
    ]);
    expect(world.sandbox.objects()).toHaveLength(2 * rows);
    expect(sent(world)).toBe(2 * rows);
    expect(world.sandbox.mostInAnySecond()).toBeLessThanOrEqual(20);
  });

  it('begins after an unfinished run over the same streams, which the command finishes', async () => {
    await world.sql`UPDATE rooms SET name = name || ' A'`;
    await world.run(['sync', 'rooms', '--detach']);
    const { code, stdout } = await world.run(['backfill', 'rooms', '--keys', 'R1', '--force']);
    expect(stdout).toContain('Run 2 over the same streams is unfinished. Finishing it first.');
    expect(stdout).toMatch(/Run 3 succeeded/);
    expect(code).toBe(0);
    expect(world.sandbox.object('room_R7')?.fields[0]?.values).toEqual(['Sal 7 A']);
  });

  it('is resumed whatever part it has', async () => {
    await world.run(['backfill', 'rooms', '--keys', 'R1,R2', '--force', '--detach']);
    const { code, stdout } = await world.run(['backfill', '--resume']);
    expect(stdout).toContain('Run 4 is unfinished. Continuing it.');
    expect(stdout).toMatch(/Run 4 succeeded/);
    expect(code).toBe(0);
    const runs = await world.run(['runs', '--kind', 'backfill', '--json']);
    expect((JSON.parse(runs.stdout) as { runs: { id: number }[] }).runs.map(({ id }) => id)).toEqual([
      4, 3, 1,
    ]);
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
