// Guarantee 10
// Commands that only read, while the service fails for a moment: they wait, ask again, and succeed.
import { afterEach, describe, expect, it } from 'vitest';
import { rehearse, type Rehearsal } from '../support/rehearsal.js';
import { until } from '../support/wait.js';

let world: Rehearsal;
afterEach(() => world.close());

describe('a command that only reads', () => {
  it.each([
    ['verify', '/objects/find'],
    ['match', '/objects/find'],
    ['discover', '/types/find'],
    ['check', '/fields/find'],
    ['reconcile', '/reservations/find'],
  ])('asks again after a 503, a reset and a lost answer: %s', async (command, path) => {
    world = await rehearse({ rows: 3, sandbox: { rate: 0 } });
    expect((await world.run(['sync'])).code).toBe(0);
    // A page of a type that fails is divided first.
    world.sandbox.failNext({ path, fault: 'status', status: 503, times: command === 'verify' ? 12 : 1 });
    world.sandbox.failNext({ path, fault: command === 'check' ? 'loseAnswer' : 'reset' });
    const { code, stdout, stderr } = await world.start([command]).finished;
    expect({ code, stdout }).toEqual({ code: 0, stdout: expect.not.stringContaining('503') });
    expect(stderr).toContain('retrying a find, because the service does not answer');
    expect(stdout + stderr).not.toContain('carried it out');
  });

  it('stops waiting when it is interrupted', async () => {
    world = await rehearse({ rows: 3, sandbox: { rate: 0 } });
    expect((await world.run(['sync'])).code).toBe(0);
    world.sandbox.failNext({ path: '/objects/find', fault: 'status', status: 503, times: 'always' });
    const verify = world.start(['verify']);
    await until(() => verify.output().includes('retrying a find'), {
      describe: () => verify.output(),
    });
    const startedAt = performance.now();
    verify.child.kill('SIGINT');
    const { stdout, stderr } = await verify.finished;
    expect(stdout + stderr).toContain('Stopped');
    expect(performance.now() - startedAt).toBeLessThan(10_000);
  });
});
