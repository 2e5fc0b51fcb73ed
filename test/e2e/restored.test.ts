// Guarantee 11
// When a command checks whether its databases were restored from a backup.
import { expect, it } from 'vitest';
import { rehearseEach } from '../support/rehearsals.js';

const world = rehearseEach({ rows: 3, sandbox: { rate: 0 } });

it('a command checks for a restore after it has registered and before it has planned', async () => {
  await world.read('sync');
  // Each look is noted with how many processes were seen then, and how many runs were planned.
  await world.sql.unsafe(`
    CREATE TABLE looks (name text, processes int, planned int);
    CREATE FUNCTION note_look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      INSERT INTO looks SELECT new.name, (SELECT count(*) FROM slotsync.processes),
        (SELECT count(*) FROM slotsync.runs WHERE status <> 'planning');
      RETURN new;
    END $$;
    CREATE TRIGGER note_look AFTER UPDATE ON slotsync.databases FOR EACH ROW EXECUTE FUNCTION note_look()`);
  await world.read('sync');
  expect(await world.sql`SELECT name, processes, planned FROM looks ORDER BY name`).toEqual([
    { name: 'mirror', processes: 1, planned: 1 },
    { name: 'state', processes: 1, planned: 1 },
  ]);
});
