import { expect, test } from 'vitest';
import { createRequestCounter } from '../../src/process/meter.js';

const at = (ms: number) => new Date(ms);

test('the request counter counts a request in the second in which it was sent', () => {
  let now = 10_300;
  const counter = createRequestCounter(() => now);
  counter.requested(200, 0.2);
  counter.requested(429, 0.5);
  now = 11_100;
  counter.requested(503, 0);
  expect(counter.take()).toEqual({
    seconds: [
      { second: at(10_000), requests: 1, throttled: 0 },
      { second: at(9000), requests: 1, throttled: 1 },
      { second: at(11_000), requests: 1, throttled: 0 },
    ],
    latest: { answer: '503', at: at(11_100) },
    success: { answer: '200', at: at(10_300) },
  });
  expect(counter.take()).toBeUndefined();
});

test('the request counter counts requests that could not be stored with the next ones', () => {
  const counter = createRequestCounter(() => 5500);
  counter.requested(200, 0);
  const counted = counter.take();
  if (counted) counter.putBack(counted);
  counter.requested(200, 0);
  expect(counter.take()?.seconds).toEqual([{ second: at(5000), requests: 2, throttled: 0 }]);
});

test('the request counter counts an interrupted request, but not as an answer of the service', () => {
  const counter = createRequestCounter(() => 5500);
  counter.requested('unreachable', 0);
  counter.requested('interrupted', 0);
  expect(counter.take()).toMatchObject({ seconds: [{ requests: 2 }], latest: { answer: 'unreachable' } });
});
