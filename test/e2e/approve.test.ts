// Guarantee 6
// A run that waits for an operator, and both answers of the operator.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rehearse, type Rehearsal } from '../support/rehearsal.js';

describe('a run that holds deactivations', () => {
  let world: Rehearsal;
  beforeAll(async () => {
    world = await rehearse({ sandbox: { rate: 0 } });
    expect((await world.run(['sync'])).code).toBe(0);
    await world.sql`DELETE FROM rooms WHERE code IN (SELECT 'R' || i FROM generate_series(40, 51) AS i)`;
    await world.sql`UPDATE courses SET room = NULL WHERE id BETWEEN 40 AND 51`;
  });
  afterAll(() => world.close());

  const inactive = () => world.sandbox.objects().filter(({ active }) => !active).length;

  it('ends with exit code 3, and names the command that approves it', async () => {
    const { code, stdout } = await world.run(['sync']);
    expect(code).toBe(3);
    expect(stdout).toMatch(
      /12 deactivations of rooms, held in run 2\n {4}12 of 60 records [^]* slotsync approve 2 --stream rooms --operation retire\n/,
    );
    expect(inactive()).toBe(0);
  });

  it('is listed in status and failures as long as it is not answered', async () => {
    const told = (await world.run(['status', '--full'])).stdout;
    expect(told).toMatch(/Run 2 holds 12 deactivations of rooms\n[^]* 12 of 60 records would be deactivated/);
    expect(told).not.toMatch(/is in sync|All well/);
    const { stdout: causes } = await world.run(['failures']);
    expect(causes.split('slotsync approve')).toHaveLength(2);
    expect(JSON.parse((await world.run(['status', '--json'])).stdout)).toMatchObject({
      gates: [
        {
          runId: 2,
          stream: 'rooms',
          operation: 'retire',
          reason: 'limit',
          count: 12,
          approval: null,
          rejectedAt: null,
        },
      ],
    });
  });

  it('cannot be approved under the number of a run that holds nothing', async () => {
    const { code, stderr } = await world.run(['approve', '1']);
    expect(stderr).toBe('slotsync: run 1 holds nothing; slotsync status shows what is held\n');
    expect(code).toBe(2);
  });

  it('can be rejected, which sends nothing and is quiet until the held records change', async () => {
    const { code, stdout } = await world.run(['reject', '2'], { API_KEY: undefined });
    expect(stdout).toMatch(
      /^Rejected: 12 deactivations of rooms, held in run 2\.\nThe gate stays closed and causes no alert until its records change\.\n$/,
    );
    expect(code).toBe(0);
    for (const run of [2, 3]) {
      const { code: status, stdout: told } = await world.run(['status', '--full']);
      expect(told).toMatch(
        new RegExp(
          String.raw`^No action needed: [^]*Notices\n-+\n- Run ${run} holds 12 deactivations of rooms\n.*Rejected .* by .*\.`,
        ),
      );
      expect(told).not.toMatch(/slotsync (?:approve|reject)|Needs a person/);
      expect(status).toBe(0);
      expect((await world.run(['sync'])).code).toBe(0);
    }
    const heldIn = (await world.run(['runs', '4'])).stdout;
    expect(heldIn).toMatch(/Held\n-+\n- 12 deactivations of rooms, held in run 4\n[^]*→ Rejected /);
    expect(heldIn).not.toContain('slotsync approve');
    expect((await world.run(['runs', '2'])).stdout).toMatch(
      /- 12 deactivations of rooms, held then\n[^]* rejected rooms: retire 12, run 2\n/,
    );
    expect((await world.run(['failures'])).stdout).toMatch(
      /^12 records are held after a rejection\.\n[^]* {4}→ No action needed: an operator rejected it, until its records change\. To approve it nevertheless: slotsync approve 4 --stream rooms --operation retire\n/,
    );
    await world.sql`DELETE FROM rooms WHERE code = 'R52'`;
    await world.sql`UPDATE courses SET room = NULL WHERE id = 52`;
    expect((await world.run(['sync'])).code).toBe(3);
    expect((await world.run(['status', '--full'])).stdout).toMatch(
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
    const listed = (await world.run(['failures', 'rooms', '--status', 'held', '--all'])).stdout;
    expect(listed.match(/^- rooms 'R\d+': held in run 5/gm)).toHaveLength(13);
    expect((await world.run(['failures'])).stdout).toMatch(
      /^13 records are held until their approved sync\.\n[^]* {4}→ No action needed: it is approved, and the next whole sync sends it\n/,
    );
    const told = (await world.run(['status', '--full'])).stdout;
    expect(told).toMatch(
      /Notices\n-+\n- Run 5 holds 13 deactivations of rooms\n.*\. Approved until .*, for run 6\.\n/,
    );
    expect(told).not.toMatch(/slotsync (?:approve|reject)/);
    const { gates } = JSON.parse((await world.run(['status', '--json'])).stdout) as { gates: unknown };
    expect(gates).toMatchObject([{ runId: 5, approval: { allowed: 13, digest: null, runId: 6 } }]);
    const heldIn = (await world.run(['runs', '5'])).stdout;
    expect(heldIn).toMatch(
      /Held\n-+\n- 13 deactivations of rooms, held in run 5\n[^]*→ Approved until .*, for run 6\.\n/,
    );
    expect(heldIn).not.toMatch(/slotsync (?:approve|reject)/);
    expect(inactive()).toBe(0);
  });

  it('is sent by the next process that works, which uses up its approval', async () => {
    // Finishes the run that is queued first.
    const { code } = await world.run(['sync']);
    expect(code).toBe(0);
    expect(inactive()).toBe(13);
    const { stdout } = await world.run(['status', '--full']);
    expect(stdout).not.toMatch(/holds \d|are held|Approved/);
    expect(stdout).toMatch(/^(?:All well|Nothing needs you): /);
    expect((await world.run(['runs', '6'])).stdout).toMatch(/\nrooms +13 +47 +13\n/);
    expect((await world.run(['runs', '5'])).stdout).toMatch(
      /Was held\n-+\n- 13 deactivations of rooms, held then\n[^]* approved rooms: retire 13, run 5\n/,
    );
  });

  it('is held again after an approval with --exactly if other records are due by then', async () => {
    await world.sql`DELETE FROM rooms WHERE code IN (SELECT 'R' || i FROM generate_series(20, 31) AS i)`;
    await world.sql`UPDATE courses SET room = NULL WHERE id BETWEEN 20 AND 31`;
    expect((await world.run(['sync'])).code).toBe(3);
    await world.sql`UPDATE rooms SET code = 'R31' WHERE code = 'R32'`;
    await world.sql`UPDATE courses SET room = NULL WHERE id = 32`;
    const { code, stdout } = await world.run(['approve', '8', '--exactly']);
    expect(stdout).toMatch(
      /allows exactly the 12 records that were held, and these are others[^]* approve 9/,
    );
    const { gates } = JSON.parse((await world.run(['status', '--json'])).stdout) as { gates: unknown };
    expect(gates).toMatchObject([{ runId: 9, count: 12, approval: null }]);
    expect(code).toBe(3);
    expect(inactive()).toBe(13);
  });

  it('can be approved and sent by one command', async () => {
    const held = JSON.parse((await world.run(['sync', '--json'])).stdout) as { run: { id: number } };
    const approved = await world.run(['approve', String(held.run.id), '--stream', 'rooms', '--json']);
    expect(JSON.parse(approved.stdout)).toMatchObject({
      approvals: [{ stream: 'rooms', operation: 'retire', approval: { allowed: 12, digest: null } }],
      run: { status: 'succeeded', kind: 'sync', streams: ['rooms'], plan: { rooms: { retire: 12 } } },
    });
    expect(approved.code).toBe(0);
    expect(inactive()).toBe(25);
    const again = await world.run(['approve', String(held.run.id)]);
    expect(again.stderr).toBe(
      `slotsync: the records that run ${held.run.id} held of rooms have been sent or planned again since; slotsync status shows what is held\n`,
    );
    expect(again.code).toBe(2);
  });

  it('is refused an approval, with its reason, when its source is empty', async () => {
    await world.sql`TRUNCATE rooms`;
    const held = JSON.parse((await world.run(['sync', 'rooms', '--json'])).stdout) as {
      run: { id: number };
    };
    const { code, stderr } = await world.run(['approve', String(held.run.id)]);
    expect(stderr).toMatch(/rooms: 35 of 35 records would be deactivated, but the source is empty/);
    expect(code).toBe(2);
    expect(inactive()).toBe(25);
  });
});
