// Guarantee 6
// A run that waits for an operator, and the operator's two answers, on both queue stores.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rehearse, type Rehearsal } from '../support/rehearsal.js';
import { STORES } from '../support/services.js';

describe.each(STORES)('with queue and quota on $store', ({ url, skip }) => {
  describe.skipIf(skip)('a run that holds something', () => {
    let world: Rehearsal;
    beforeAll(async () => {
      world = await rehearse({ redisUrl: url, sandbox: { rate: 0 } });
      expect((await world.run(['sync'])).code).toBe(0);
      await world.sql`DELETE FROM rooms WHERE code IN (SELECT 'R' || i FROM generate_series(40, 51) AS i)`;
      await world.sql`UPDATE courses SET room = NULL WHERE id BETWEEN 40 AND 51`;
    });
    afterAll(() => world.close());

    const inactive = () => world.sandbox.objects().filter(({ active }) => !active).length;

    it('ends with 3 and names the command', async () => {
      const { code, stdout } = await world.run(['sync']);
      expect(code).toBe(3);
      expect(stdout).toMatch(
        /12 deactivations of rooms, held in run 2\n {4}12 of 60 records [^]* slotsync approve 2 --stream rooms --operation retire\n/,
      );
      expect(inactive()).toBe(0);
    });

    it('stands in status until somebody decides', async () => {
      const told = (await world.run(['status'])).stdout;
      expect(told).toMatch(
        /Run 2 \(sync\) holds 12 deactivations of rooms\n[^]* 12 of 60 records would be deactivated/,
      );
      expect(told).not.toContain('in sync');
      const { stdout: causes } = await world.run(['failures']);
      expect(causes.split('slotsync approve')).toHaveLength(2);
      const { holds, approvals } = JSON.parse((await world.run(['status', '--json'])).stdout) as Record<
        string,
        unknown
      >;
      expect(holds).toMatchObject([
        { runId: 2, stream: 'rooms', operation: 'retire', count: 12, approvable: true },
      ]);
      expect(approvals).toEqual([]);
    });

    it('is named by its number; anything else is one line that says so', async () => {
      const { code, stderr } = await world.run(['approve', '1']);
      expect(stderr).toBe('slotsync: run 1 holds nothing; slotsync status shows what is held\n');
      expect(code).toBe(2);
    });

    it('can be rejected: nothing is sent, it waits no more, and the next run holds it again', async () => {
      const { code, stdout } = await world.run(['reject', '2'], { API_KEY: undefined });
      expect(stdout).toMatch(
        /Rejected: 12 deactivations of rooms, held in run 2\.\nThe next run plans them again.*\nRun 2 partial\./,
      );
      expect(code).toBe(0);
      expect((await world.run(['status'])).stdout).not.toMatch(/holds \d/);
      expect((await world.run(['sync'])).code).toBe(3);
      expect(inactive()).toBe(0);
    });

    it('can be approved for workers, once, and the approval is seen until it is used', async () => {
      const both = await Promise.all([1, 2].map(() => world.run(['approve', '3', '--detach'])));
      const [given, refused] = both.toSorted((a, b) => Number(a.code) - Number(b.code));
      expect(given?.stdout).toMatch(
        /^Approved: up to 12 deactivations of rooms until .* \(held in run 3\), for run 4\.\nHeld: 'R40', 'R41', 'R42', 'R43', 'R44', … All of them, .*: slotsync failures rooms --status held --all\nRun 4 is queued/,
      );
      expect(given?.code).toBe(0);
      const already =
        'slotsync: retire of rooms, held in run 3, is approved already: run 4 does it; to stop that: slotsync cancel 4\n';
      expect(refused).toMatchObject({ code: 2, stderr: already });
      expect(await world.run(['reject', '3'])).toMatchObject({ code: 2, stderr: already });
      const listed = (await world.run(['failures', 'rooms', '--status', 'held', '--all'])).stdout;
      expect(listed.match(/^- rooms 'R\d+': held in run 3/gm)).toHaveLength(12);
      expect((await world.run(['status'])).stdout).toContain(
        'Approved: up to 12 deactivations of rooms until',
      );
      const heldIn = (await world.run(['runs', '3'])).stdout;
      expect(heldIn).toContain('Was held for approval');
      expect(heldIn).toContain('Approved: run 4 does it.');
      expect(heldIn).not.toContain('slotsync approve');
      expect(inactive()).toBe(0);
    });

    it('is done by whoever works next, and the approval is used', async () => {
      // Finishes the run that is queued first.
      const { code } = await world.run(['sync']);
      expect(code).toBe(0);
      expect(inactive()).toBe(12);
      const { stdout } = await world.run(['status']);
      expect(stdout).not.toMatch(/Held in|Approved/);
      expect((await world.run(['runs', '4'])).stdout).toContain(
        'Approved: 12 deactivations of rooms, held in run 3. Used for the same records.',
      );
      expect((await world.run(['runs', '3'])).stdout).toContain('Approved, and done by run 4.');
    });

    it('approved exactly, is held again when other records are due', async () => {
      await world.sql`DELETE FROM rooms WHERE code IN (SELECT 'R' || i FROM generate_series(20, 31) AS i)`;
      await world.sql`UPDATE courses SET room = NULL WHERE id BETWEEN 20 AND 31`;
      expect((await world.run(['sync'])).code).toBe(3);
      await world.sql`UPDATE rooms SET code = 'R31' WHERE code = 'R32'`;
      await world.sql`UPDATE courses SET room = NULL WHERE id = 32`;
      const { code, stdout } = await world.run(['approve', '6', '--exactly']);
      expect(stdout).toMatch(
        /allows exactly the 12 records that were held, and these are others[^]* approve 7/,
      );
      expect(stdout).toContain('held in run 6. Not used: it ended with the plan of this run.');
      expect(code).toBe(3);
      expect(inactive()).toBe(12);
    });

    it('can be approved and worked in one go', async () => {
      const held = JSON.parse((await world.run(['sync', '--json'])).stdout) as { run: { id: number } };
      const approved = await world.run(['approve', String(held.run.id), '--stream', 'rooms', '--json']);
      expect(JSON.parse(approved.stdout)).toMatchObject({
        approvals: [{ stream: 'rooms', operation: 'retire', allowed: 12 }],
        run: { status: 'succeeded', kind: 'sync', streams: ['rooms'], plan: { rooms: { retire: 12 } } },
      });
      expect(approved.code).toBe(0);
      expect(inactive()).toBe(24);
      const again = await world.run(['approve', String(held.run.id)]);
      expect(again.stderr).toMatch(
        /run \d+ has planned rooms again since run \d+; slotsync status shows what is held/,
      );
      expect(again.code).toBe(2);
    });

    it('says its own reason where no approval helps', async () => {
      await world.sql`TRUNCATE rooms`;
      const held = JSON.parse((await world.run(['sync', 'rooms', '--json'])).stdout) as {
        run: { id: number };
      };
      const { code, stderr } = await world.run(['approve', String(held.run.id)]);
      expect(stderr).toMatch(/rooms: 36 of 36 records would be deactivated, but the source is empty/);
      expect(code).toBe(2);
      expect(inactive()).toBe(24);
    });
  });
});
