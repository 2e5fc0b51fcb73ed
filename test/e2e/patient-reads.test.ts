// Guarantee 10
// Commands that only read, while the service fails for a moment: they wait, ask again, and succeed.
import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { rehearseOnce } from '../support/rehearsals.js';
import { until } from '../support/wait.js';

describe('a command that only reads', () => {
  const world = rehearseOnce({ rows: 3, sandbox: { rate: 0 } });
  beforeAll(async () => void (await world.read('sync')));
  beforeEach(() => world.sandbox.clearArrivals());

  it.each([
    ['verify', '/objects/find'],
    ['match', '/objects/find'],
    ['discover', '/types/find'],
    ['check', '/fields/find'],
    ['reconcile', '/reservations/find'],
  ])('asks again after a 503, a reset and a lost answer: %s', async (command, path) => {
    // A page of a type that fails is divided first.
    const times = command === 'verify' ? 12 : 1;
    world.sandbox.failNext({ path, fault: 'status', status: 503, times });
    world.sandbox.failNext({ path, fault: command === 'check' ? 'loseAnswer' : 'reset' });
    const { code, stdout, stderr } = await world.run([command]);
    expect({ code, stdout }).toEqual({ code: 0, stdout: expect.not.stringContaining('503') });
    expect(stdout + stderr).not.toContain('carried it out');
    const answers = world.sandbox.arrivals().filter((one) => one.path.endsWith(path));
    expect(answers.filter(({ status }) => status === 503)).toHaveLength(times);
    expect(answers.filter(({ status }) => status === 0)).toHaveLength(1);
    expect(answers.at(-1)).toMatchObject({ status: 200 });
  });

  it('says in the log that it asks again, and stops waiting when it is interrupted', async () => {
    world.sandbox.failNext({ path: '/objects/find', fault: 'status', status: 503, times: 'always' });
    const verify = world.start(['verify']);
    await until(() => verify.output().includes('retrying a find, because the service does not answer'), {
      describe: () => verify.output(),
    });
    const startedAt = performance.now();
    verify.child.kill('SIGINT');
    const { stdout, stderr } = await verify.finished;
    expect(stdout + stderr).toContain('Stopped');
    expect(performance.now() - startedAt).toBeLessThan(10_000);
  });
});
