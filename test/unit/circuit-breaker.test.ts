import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import type { ErrorCode } from '../../src/errors/error-catalogue.js';
import { SlotsyncError } from '../../src/errors/errors.js';
import { createCircuitBreaker } from '../../src/queue/circuit-breaker.js';

const SECOND = 1000;
const JOB = 'batches 1';
beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());
const pass = (seconds: number) => vi.advanceTimersByTimeAsync(seconds * SECOND);

const failure = (code: ErrorCode) => new SlotsyncError(code, code);

function setUp({ well = () => true }: { well?: () => boolean } = {}) {
  const lines: { level: number; msg: string }[] = [];
  const log = pino(
    { level: 'info' },
    { write: (line: string) => void lines.push(JSON.parse(line) as never) },
  );
  const events: string[] = [];
  const probed = vi.fn(async () => {
    if (!well()) throw failure('service_unreachable');
  });
  const stopping = new AbortController();
  const breaker = createCircuitBreaker({
    log,
    signal: stopping.signal,
    probe: probed,
    pauseSending: () => events.push('open'),
    resumeSending: () => events.push('close'),
  });
  const stop = () => stopping.abort();
  /** Lets batches fail one after the other. */
  const fail = (times: number, code: ErrorCode = 'unauthorized') => {
    for (let at = 0; at < times; at++) breaker.failed(failure(code), JOB);
  };
  onTestFinished(stop);
  return { breaker, fail, stop, events, probed, errors: () => lines.filter(({ level }) => level === 50) };
}

describe('the circuit breaker', () => {
  it('opens at the fifth systemic failure in a row, but not if a batch succeeds in between', () => {
    const { breaker, fail } = setUp();
    fail(4, 'service_failed');
    breaker.succeeded(JOB);
    fail(4, 'service_failed');
    expect(breaker.isOpen()).toBe(false);
    fail(1);
    expect(breaker.isOpen()).toBe(true);
  });

  it('counts a failed request once, even if the request fails many batches', () => {
    const { breaker, fail } = setUp();
    const shared = failure('service_failed');
    for (let at = 0; at < 20; at++) breaker.failed(shared, `batches ${at}`);
    expect(breaker.isOpen()).toBe(false);
    fail(4, 'service_failed');
    expect(breaker.isOpen()).toBe(true);
  });

  it('does not count errors of single records', () => {
    const { breaker } = setUp();
    for (let at = 0; at < 20; at++) expect(breaker.failed(failure('refused'), JOB)).toBe(false);
    expect(breaker.isOpen()).toBe(false);
  });

  it('makes a batch wait for credentials and stores without using an attempt, but not after a 500', () => {
    const { breaker } = setUp();
    expect(breaker.failed(failure('unauthorized'), JOB)).toBe(true);
    expect(breaker.failed(failure('state_unreachable'), JOB)).toBe(true);
    expect(breaker.failed(failure('service_failed'), JOB)).toBe(false);
    expect(breaker.failed(failure('answer_lost'), JOB)).toBe(false);
  });

  it('makes a batch wait for a gateway only while no other batch succeeds', () => {
    const { breaker } = setUp();
    const failed = (job: string) => breaker.failed(failure('gateway_answered'), job);
    expect([failed('1'), failed('2'), failed('1'), failed('2')]).toEqual([true, true, true, true]);
    breaker.succeeded('3');
    expect([failed('1'), failed('1'), failed('2')]).toEqual([false, true, false]);
    breaker.succeeded('1');
    expect([failed('1'), failed('2')]).toEqual([true, false]);
  });

  it('probes at growing intervals until a probe succeeds, logs one error, and closes', async () => {
    let well = false;
    const { breaker, fail, events, probed, errors } = setUp({ well: () => well });
    fail(12);
    const probes: number[] = [];
    for (const gap of [5, 10, 20, 40, 80, 160, 300, 300]) {
      await pass(gap - 0.001);
      probes.push(probed.mock.calls.length);
      await pass(0.001);
    }
    expect(probes).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    expect(events).toEqual(['open']);
    expect(errors()).toHaveLength(1);

    well = true;
    await pass(300);
    expect(events).toEqual(['open', 'close']);
    expect(breaker.isOpen()).toBe(false);
    // Nothing has succeeded since: it opens again without another report, and the gap stays.
    fail(12);
    await pass(299);
    expect(events).toEqual(['open', 'close', 'open']);
    await pass(1);
    expect(events).toEqual(['open', 'close', 'open', 'close']);
    expect(errors()).toHaveLength(1);

    breaker.succeeded(JOB);
    fail(5);
    expect(errors()).toHaveLength(2);
    await pass(5);
    expect(events).toHaveLength(6);
  });

  it('stops probing and stays open once the process is stopping', async () => {
    let well = false;
    const { breaker, fail, stop, probed, events } = setUp({ well: () => well });
    fail(5, 'service_unreachable');
    await pass(5);
    expect(probed).toHaveBeenCalledTimes(1);
    stop();
    well = true;
    await pass(3600);
    expect(probed).toHaveBeenCalledTimes(1);
    expect(events).toEqual(['open']);
    expect(breaker.failed(failure('unauthorized'), JOB)).toBe(false);
  });
});
