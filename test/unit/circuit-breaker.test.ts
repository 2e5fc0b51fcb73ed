import { describe, expect, it, vi } from 'vitest';
import { pino } from 'pino';
import type { ErrorCode } from '../../src/error-catalogue.js';
import { SlotsyncError } from '../../src/errors.js';
import { createBreaker } from '../../src/queue/circuit-breaker.js';

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
  const breaker = createBreaker({
    log,
    probe: probed,
    onOpen: () => events.push('open'),
    onClose: () => events.push('close'),
    firstGapMs: 5,
    longestGapMs: 20,
  });
  return { breaker, events, probed, errors: () => lines.filter(({ level }) => level === 50) };
}

describe('the circuit breaker', () => {
  it('opens at the fifth systemic failure running, and not when something succeeds between', () => {
    const { breaker } = setUp();
    for (let at = 0; at < 4; at++) breaker.failed(failure('service_failed'));
    breaker.succeeded();
    for (let at = 0; at < 4; at++) breaker.failed(failure('service_failed'));
    expect(breaker.isOpen()).toBe(false);
    breaker.failed(failure('unauthorized'));
    expect(breaker.isOpen()).toBe(true);
    breaker.stop();
  });

  it('does not count what is a record’s own fault', () => {
    const { breaker } = setUp();
    for (let at = 0; at < 20; at++) expect(breaker.failed(failure('refused'))).toBe(false);
    expect(breaker.isOpen()).toBe(false);
  });

  it('lets a batch wait for credentials and servers without losing an attempt, but not for its own 500', () => {
    const { breaker } = setUp();
    expect(breaker.failed(failure('unauthorized'))).toBe(true);
    expect(breaker.failed(failure('state_unreachable'))).toBe(true);
    expect(breaker.failed(failure('service_failed'))).toBe(false);
    expect(breaker.failed(failure('answer_lost'))).toBe(false);
  });

  it('probes until things are well, says so once, and closes', async () => {
    let well = false;
    const { breaker, events, probed, errors } = setUp({ well: () => well });
    for (let at = 0; at < 12; at++) breaker.failed(failure('unauthorized'));
    await vi.waitUntil(() => probed.mock.calls.length >= 3);
    expect(events).toEqual(['open']);
    well = true;
    await vi.waitUntil(() => events.includes('close'));
    for (let at = 0; at < 12; at++) breaker.failed(failure('unauthorized'));
    await vi.waitUntil(() => events.length === 4);
    expect(events).toEqual(['open', 'close', 'open', 'close']);
    expect(errors()).toHaveLength(1);
    breaker.succeeded();
    for (let at = 0; at < 5; at++) breaker.failed(failure('unauthorized'));
    expect(errors()).toHaveLength(2);
    breaker.stop();
  });

  it('probes no more once it is stopped', async () => {
    const [stopped, other] = [setUp({ well: () => false }), setUp({ well: () => false })];
    for (const { breaker } of [stopped, other])
      for (let at = 0; at < 5; at++) breaker.failed(failure('service_unreachable'));
    await vi.waitUntil(() => stopped.probed.mock.calls.length >= 1);
    stopped.breaker.stop();
    const calls = stopped.probed.mock.calls.length;
    // As long as another of the same gaps takes for five more.
    const before = other.probed.mock.calls.length;
    await vi.waitUntil(() => other.probed.mock.calls.length >= before + 5);
    other.breaker.stop();
    expect(stopped.probed.mock.calls.length).toBeLessThanOrEqual(calls + 1);
  });
});
