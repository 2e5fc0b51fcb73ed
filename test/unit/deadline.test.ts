import { expect, it } from 'vitest';
import { openDeadline, TimeoutError, withDeadline } from '../../src/time/deadline.js';
import { settleAmidCollections } from '../support/garbage.js';

const never = () => new Promise<never>(() => undefined);

it('a deadline passes although garbage is collected and the work ignores its signal', async () => {
  const { signal } = new AbortController();
  const ended = await settleAmidCollections(withDeadline({ ms: 100, signal }, never));
  expect(ended).toMatchObject({ status: 'rejected', reason: expect.any(TimeoutError) });
});

it('a deadline aborts the work with the reason of the caller’s signal', async () => {
  const caller = new AbortController();
  const reason = new Error('the worker is stopping');
  const signals: AbortSignal[] = [];
  const wait = () =>
    withDeadline({ ms: 600_000, signal: caller.signal }, (signal) => {
      signals.push(signal);
      return never();
    });
  const waiting = wait();
  caller.abort(reason);
  await expect(waiting).rejects.toBe(reason);
  await expect(wait()).rejects.toBe(reason);
  expect(signals.map((signal) => signal.reason as unknown)).toEqual([reason, reason]);
});

it('a deadline that has ended aborts nothing, neither at its time nor by the caller’s signal', async () => {
  const caller = new AbortController();
  const deadline = openDeadline({ ms: 1, signal: caller.signal });
  expect(await deadline.within(Promise.resolve('done'))).toBe('done');
  deadline.end();
  caller.abort();
  await new Promise((resolve) => setTimeout(resolve, 10));
  expect(deadline.signal.aborted).toBe(false);
});
