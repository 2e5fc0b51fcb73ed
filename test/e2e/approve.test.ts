// Guarantee 6
// A run that waits for an operator, and both answers of the operator.
import { beforeAll, describe, expect, it } from 'vitest';
import { commandsOf, rehearseOnce } from '../support/rehearsals.js';

describe('a run that holds deactivations', () => {
  const world = rehearseOnce({ sandbox: { rate: 0 } });
  beforeAll(async () => {
    await world.read('sync');
    await world.sql`DELETE FROM rooms WHERE code IN (SELECT 'R' || i FROM generate_series(40, 51) AS i)`;
    await world.sql`UPDATE courses SET room = NULL WHERE id BETWEEN 40 AND 51`;
  });

  const inactive = () => world.sandbox.objects().filter(({ active }) => !active).length;
  const gates = async () => (await world.json<{ gates: unknown }>('status --json')).gates;

  it('ends with exit code 3, and is listed with its command as long as it is not answered', async () => {
    await world.ends(
      'sync',
      3,
      /12 deactivations of rooms, held in run 2\n {4}12 of 60 records [^]* slotsync approve 2 --stream rooms --operation retire\n/,
    );
    expect(inactive()).toBe(0);
    const status = await world.ends(
      'status --full',
      0,
      /Run 2 holds 12 deactivations of rooms\n[^]* 12 of 60 records would be deactivated/,
    );
    expect(status).not.toMatch(/is in sync|All well/);
    expect((await world.read('failures')).split('slotsync approve')).toHaveLength(2);
    const held = { runId: 2, stream: 'rooms', operation: 'retire', reason: 'limit', count: 12 };
    expect(await gates()).toMatchObject([{ ...held, approval: null, rejectedAt: null }]);
  });

  it('can be rejected, which sends nothing and is quiet until the held records change', async () => {
    await commandsOf(world, { API_KEY: undefined }).ends(
      'reject 2',
      0,
      /^Rejected: 12 deactivations of rooms, held in run 2\.\nThe gate stays closed and causes no alert until its records change\.\n$/,
    );
    for (const run of [2, 3]) {
      const status = await world.ends(
        'status --full',
        0,
        new RegExp(
          String.raw`^No action needed: [^]*Notices\n-+\n- Run ${run} holds 12 deactivations of rooms\n.*Rejected .* by .*\.`,
        ),
      );
      expect(status).not.toMatch(/slotsync (?:approve|reject)|Needs a person/);
      await world.read('sync');
    }
    const heldIn = await world.ends(
      'runs 4',
      0,
      /Held\n-+\n- 12 deactivations of rooms, held in run 4\n[^]*→ Rejected /,
    );
    expect(heldIn).not.toContain('slotsync approve');
    await world.ends(
      'runs 2',
      0,
      /- 12 deactivations of rooms, held then\n[^]* rejected rooms: retire 12, run 2\n/,
    );
    await world.ends(
      'failures',
      0,
      /^12 records are held after a rejection\.\n[^]* {4}→ No action needed: an operator rejected it, until its records change\. To approve it nevertheless: slotsync approve 4 --stream rooms --operation retire\n/,
    );
    await world.sql`DELETE FROM rooms WHERE code = 'R52'`;
    await world.sql`UPDATE courses SET room = NULL WHERE id = 52`;
    await world.ends('sync', 3);
    await world.ends(
      'status --full',
      0,
      /Needs a person\n-+\n- Run 5 holds 13 deactivations of rooms\n[^]*→ slotsync approve 5 --stream rooms --operation retire\n/,
    );
    expect(inactive()).toBe(0);
  });

  it('can be approved for workers only once, and status shows the approval until it is used', async () => {
    const both = await Promise.all([1, 2].map(() => world.run(['approve', '5', '--detach'])));
    const [given, refused] = both.toSorted((a, b) => Number(a.code) - Number(b.code));
    expect(given?.stdout).toMatch(
      /^Approved: up to 13 deactivations of rooms until .* \(held in run 5\), for run 6\.\nHeld: 'R40', 'R41', 'R42', 'R43', 'R44', … All of them: slotsync failures rooms --status held --all\nRun 6 is queued/,
    );
    expect(given?.code).toBe(0);
    const already =
      'slotsync: retire of rooms, held in run 5, is already approved: run 6 sends it; to stop it: slotsync cancel 6\n';
    expect(refused).toMatchObject({ code: 2, stderr: already });
    expect(await world.run(['reject', '5'])).toMatchObject({ code: 2, stderr: already });
    const listed = await world.read('failures rooms --status held --all');
    expect(listed.match(/^- rooms 'R\d+': held in run 5/gm)).toHaveLength(13);
    await world.ends(
      'failures',
      0,
      /^13 records are held until their approved sync\.\n[^]* {4}→ No action needed: it is approved, and the next whole sync sends it\n/,
    );
    const status = await world.ends(
      'status --full',
      0,
      /Notices\n-+\n- Run 5 holds 13 deactivations of rooms\n.*\. Approved until .*, for run 6\.\n/,
    );
    const heldIn = await world.ends(
      'runs 5',
      0,
      /Held\n-+\n- 13 deactivations of rooms, held in run 5\n[^]*→ Approved until .*, for run 6\.\n/,
    );
    expect(status + heldIn).not.toMatch(/slotsync (?:approve|reject)/);
    expect(await gates()).toMatchObject([{ runId: 5, approval: { allowed: 13, digest: null, runId: 6 } }]);
    expect(inactive()).toBe(0);
  });

  it('is sent by the next process that works, which uses up its approval', async () => {
    await world.read('sync'); // finishes the run that is queued first
    expect(inactive()).toBe(13);
    const status = await world.ends('status --full', 0, /^(?:All well|Nothing needs you): /);
    expect(status).not.toMatch(/holds \d|are held|Approved/);
    await world.ends('runs 6', 0, /\nrooms +13 +47 +13\n/);
    await world.ends(
      'runs 5',
      0,
      /Was held\n-+\n- 13 deactivations of rooms, held then\n[^]* approved rooms: retire 13, run 5\n/,
    );
  });

  it('is held again after an approval with --exactly if other records are due, else sent by the command', async () => {
    await world.sql`DELETE FROM rooms WHERE code IN (SELECT 'R' || i FROM generate_series(20, 31) AS i)`;
    await world.sql`UPDATE courses SET room = NULL WHERE id BETWEEN 20 AND 31`;
    await world.ends('sync', 3);
    await world.sql`UPDATE rooms SET code = 'R31' WHERE code = 'R32'`;
    await world.sql`UPDATE courses SET room = NULL WHERE id = 32`;
    await world.ends(
      'approve 8 --exactly',
      3,
      /allows exactly the 12 records that were held, and these are others[^]* approve 9/,
    );
    expect(await gates()).toMatchObject([{ runId: 9, count: 12, approval: null }]);
    expect(inactive()).toBe(13);
    expect(JSON.parse(await world.read('approve 9 --stream rooms --json'))).toMatchObject({
      approvals: [{ stream: 'rooms', operation: 'retire', approval: { allowed: 12, digest: null } }],
      run: { status: 'succeeded', kind: 'sync', streams: ['rooms'], plan: { rooms: { retire: 12 } } },
    });
    expect(inactive()).toBe(25);
  });
});
