// Guarantee 11
// Mirror and state restored together from a backup, as an operator sees it: what the commands say, and the one that mends it.
import { afterEach, expect, it } from 'vitest';
import { backUpDatabase } from '../support/clusters.js';
import { rehearse, type Rehearsal } from '../support/rehearsal.js';

let world: Rehearsal;
afterEach(() => world.close());

const nameOf = (code: string) => world.sandbox.object(`room_${code}`)?.fields[0]?.values;

it('says until a verify that what was sent is not known, and the repair sends it again', async () => {
  world = await rehearse({ rows: 10, sandbox: { rate: 0 } });
  expect((await world.run(['sync'])).code).toBe(0);
  expect((await world.run(['status'])).stdout).toContain('Every record is in sync');
  const putBack = await backUpDatabase(world.url);
  await world.sql`UPDATE rooms SET name = 'sent since' WHERE code = 'R1'`;
  expect((await world.run(['sync'])).code).toBe(0);
  await putBack();

  const first = await world.run(['status']);
  expect(first.stdout).toMatch(
    /The state was restored[^]*another database of its server [^]*→ slotsync verify --repair/,
  );
  expect(first.stdout).not.toContain('in sync');
  const sync = await world.run(['sync']);
  expect(sync.code).toBe(1);
  expect(sync.stdout).toMatch(/the state is another database .* is not known/);
  expect(sync.stdout).toContain('slotsync verify --repair');
  expect((await world.run(['status'])).stdout).toMatch(/noticed 20\d\d-/);
  expect((await world.run(['failures'])).stdout).toContain('is not known: slotsync verify --repair');
  expect((await world.run(['report'])).stdout).toContain('slotsync verify --repair');
  const check = await world.run(['check']);
  expect(check.stdout).toMatch(/! database of the state: the state is another database/);
  expect(check.stdout).toMatch(/✓ database of the mirror: a restore is recognized by system identifier \d+/);
  expect(nameOf('R1')).toEqual(['sent since']);

  await world.sql`UPDATE slotsync.records SET updated_at = now() - interval '1 hour'`;
  // The mirror was put back as well, so that what the repair would send is older: the operator decides.
  const repair = await world.run(['verify', '--repair']);
  expect(repair.code).toBe(3);
  expect(nameOf('R1')).toEqual(['sent since']);
  const [, run = ''] = /slotsync approve (\d+)/.exec(repair.stdout) ?? [];
  expect((await world.run(['approve', run])).code).toBe(0);
  expect(nameOf('R1')).toEqual(['Sal 1']);
  const after = await world.run(['sync']);
  expect(after.code).toBe(0);
  const status = await world.run(['status']);
  expect(status.stdout).toContain('Every record is in sync');
  expect(status.stdout).not.toContain('The state was restored');
});

it('a command looks at its state when others see it at work, and no later than it plans', async () => {
  world = await rehearse({ rows: 3, sandbox: { rate: 0 } });
  expect((await world.run(['sync'])).code).toBe(0);
  // Each look is noted with how many processes were seen then, and how many runs were planned.
  await world.sql.unsafe(`
    CREATE TABLE looks (name text, processes int, planned int);
    CREATE FUNCTION note_look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      INSERT INTO looks SELECT new.name, (SELECT count(*) FROM slotsync.processes),
        (SELECT count(*) FROM slotsync.runs WHERE status <> 'planning');
      RETURN new;
    END $$;
    CREATE TRIGGER note_look AFTER UPDATE ON slotsync.databases FOR EACH ROW EXECUTE FUNCTION note_look()`);
  expect((await world.run(['sync'])).code).toBe(0);
  const looks = await world.sql<{ name: string }[]>`SELECT name, processes, planned FROM looks`;
  expect(looks.toSorted((a, b) => a.name.localeCompare(b.name))).toEqual([
    { name: 'mirror', processes: 1, planned: 1 },
    { name: 'state', processes: 1, planned: 1 },
  ]);
});
