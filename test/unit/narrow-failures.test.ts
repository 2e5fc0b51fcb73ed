// Guarantee 10
// An object at which the service fails blocks no other object: the attempts of its batch narrow it down.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { PutObject, PutResult } from '../../src/destination/destination.js';
import { codeOf, SlotsyncError } from '../../src/errors/errors.js';
import { decideRetry } from '../../src/queue/executor.js';
import { createObject } from '../../src/streams/destination-object.js';
import type { Stream } from '../../src/streams/stream.js';
import { createRequestFiller } from '../../src/sync/apply/fill-requests.js';
import { afterFailure, FAILS_ON_OBJECT, NO_FAILURES } from '../../src/sync/apply/narrow-failures.js';
import { FIRST_SIZE, learn, type RequestSize, type SentRequest } from '../../src/sync/apply/request-size.js';
import { playPuts } from '../support/play-put.js';

const TIMEOUT_MS = 30_000;
async function turns(count: number): Promise<void> {
  for (let left = count; left > 0; left--) await new Promise((resolve) => setImmediate(resolve));
}
const failed = () => new SlotsyncError('service_failed', 'answered 500', { facts: { status: 500 } });
const refused = () => new SlotsyncError('refused', 'answered 422', { facts: { status: 422 } });
const hung = () => new SlotsyncError('answer_lost', 'no answer', { facts: { reason: 'timeout' } });

/** Plays a service. `judge` throws the failure of a request with these objects. A timeout takes its time. */
function playService(judge: (names: readonly string[], request: number) => void) {
  const sent: string[][] = [];
  const learned: SentRequest[] = [];
  const time = { ms: 0 };
  const underWay = { now: 0, most: 0 };
  const puts = playPuts(async (list) => {
    const names = list.map(({ extId }) => extId);
    const number = sent.push(names);
    underWay.most = Math.max(underWay.most, ++underWay.now);
    await turns(1);
    try {
      judge(names, number);
    } catch (error) {
      if (error instanceof SlotsyncError && error.facts['reason'] === 'timeout') {
        const answeredAt = time.ms + TIMEOUT_MS;
        await turns(100); // what is answered meanwhile comes first
        time.ms = Math.max(time.ms, answeredAt);
      }
      throw error;
    } finally {
      underWay.now--;
    }
    return new Map(names.map((extId): [string, PutResult] => [extId, { accepted: true, id: '1' }]));
  });
  return { ...puts, sent, learned, time, underWay };
}

/** Writes a batch as the workers do, attempt by attempt. */
async function write(
  service: ReturnType<typeof playService>,
  names: readonly string[],
  options: {
    batchSize?: number | 'auto';
    goodForMs?: number;
    suspects?: readonly string[];
    lane?: 'sync' | 'incremental';
    attempts?: number;
  } = {},
) {
  const { batchSize = 'auto', goodForMs = Infinity, suspects = [], lane = 'sync', attempts } = options;
  const filler = createRequestFiller({
    destination: service,
    clock: () => service.time.ms,
    sizes: {
      of: () => ({ ...FIRST_SIZE, objects: 1000 }),
      learn: (_, request) => void service.learned.push(request),
    },
  });
  const accepted = new Set<string>();
  const refusals = new Set<string>();
  const culprits = new Set<string>();
  const doubted = new Set<string>();
  const errors: string[] = [];
  const ends: number[] = [];
  let earlier = NO_FAILURES;
  for (let attemptsMade = 0; ;) {
    let rest: readonly PutObject[] = names
      .filter((name) => !accepted.has(name) && !refusals.has(name) && !culprits.has(name))
      .map((name) => createObject(name, 'room', true, []));
    const attempt = { earlier, isAnswered: false };
    let failure: unknown;
    for (let isAgain = false; rest.length > 0; isAgain = true) {
      const stream = { type: 'room', batchSize } as Stream;
      const written = await filler.put(
        stream,
        { lane },
        {
          objects: rest,
          suspects: new Set(suspects),
          attempt,
          goodUntil: service.time.ms + goodForMs,
          isAgain,
          claim: { confirm: async () => undefined },
        },
      );
      for (const [name, { accepted: isAccepted }] of written.results)
        (isAccepted ? accepted : refusals).add(name);
      for (const name of written.culprits.keys()) culprits.add(name);
      for (const name of written.sent) doubted.add(name);
      failure = written.failure?.error;
      rest = failure === undefined ? rest.filter(({ extId }) => written.unsent.has(extId)) : [];
    }
    ends.push(service.sent.length);
    if (failure === undefined) break;
    errors.push(codeOf(failure));
    earlier = afterFailure(earlier, failure);
    if (decideRetry({ error: failure, attemptsMade, attempts }).action === 'fail') break;
    attemptsMade++;
  }
  return { accepted, refusals, culprits, doubted, errors, ends, requests: service.sent.length };
}

const namesOf = (count: number) => Array.from({ length: count }, (_, at) => `r${at}`);
const failOn = (bad: Iterable<string>, error = failed) => {
  const poison = new Set(bad);
  return (names: readonly string[]) => {
    if (names.some((name) => poison.has(name))) throw error();
  };
};

/** Requests that narrowing may add for each object that the service fails on. */
const requestsFor = (count: number) => 4 * Math.ceil(Math.log(count) / Math.log(4)) + 3;
const systemic = (errors: readonly string[]) => errors.filter((code) => code !== FAILS_ON_OBJECT);

describe('an object at which the service fails', () => {
  it.each([
    ['one of 1000', 1000, ['r613']],
    ['the first of 1000', 1000, ['r0']],
    ['the last of 1000', 1000, ['r999']],
    ['one of 100', 100, ['r61']],
    ['one of two', 2, ['r0']],
    ['ten of 1000, beside each other', 1000, namesOf(1000).slice(500, 510)],
    ['ten of 1000, apart', 1000, namesOf(1000).filter((_, at) => at % 100 === 37)],
    ['sixteen of 64, beside each other', 64, namesOf(64).slice(20, 36)],
  ])(
    'is found in few requests and with few systemic failures, and the rest is accepted: %s',
    async (_, count, bad) => {
      for (const batchSize of ['auto', 100] as const) {
        const result = await write(playService(failOn(bad)), namesOf(count), { batchSize });
        expect([...result.culprits].toSorted()).toEqual([...bad].toSorted());
        expect(result.accepted.size).toBe(count - bad.length);
        expect(bad.every((name) => result.doubted.has(name))).toBe(true);
        const usual = Math.ceil(count / (batchSize === 'auto' ? 1000 : batchSize));
        expect(result.requests).toBeLessThanOrEqual(usual + 1 + bad.length * requestsFor(count));
        expect(systemic(result.errors).length).toBeLessThanOrEqual(2);
        expect(result.errors.length).toBeLessThanOrEqual(4);
      }
    },
  );

  it('does not keep the other objects of an incremental batch out of its second attempt', async () => {
    const service = playService(failOn(['r37']));
    const { culprits, ends, requests } = await write(service, namesOf(100), { lane: 'incremental' });
    const second = service.sent.slice(ends[0], ends[1]);
    expect(new Set(second.flat()).size).toBe(100);
    expect(service.sent.slice(ends[1])).toEqual([['r37'], ['r37']]);
    expect([...culprits]).toEqual(['r37']);
    expect(requests).toBeLessThanOrEqual(1 + requestsFor(100));
  });

  it('is found beside refused objects, for any kind of failure and any age of the reading', async () => {
    const failures = { failed, hung, reset: () => new SlotsyncError('answer_lost', 'reset') } as const;
    const history = fc.integer({ min: 2, max: 200 }).chain((count) =>
      fc.record({
        count: fc.constant(count),
        bad: fc.uniqueArray(fc.integer({ min: 1, max: count - 1 }), { maxLength: 5 }),
        refusedAlone: fc.uniqueArray(fc.integer({ min: 1, max: count - 1 }), { maxLength: 3 }),
        failure: fc.constantFrom('failed', 'hung', 'reset' as const),
        goodForMs: fc.constantFrom(Infinity, 10_000),
        batchSize: fc.constantFrom<number | 'auto'>('auto', 7, 100),
        isRefusedFirst: fc.boolean(),
      }),
    );
    await fc.assert(
      fc.asyncProperty(
        history,
        async ({ count, failure, goodForMs, batchSize, isRefusedFirst, ...chosen }) => {
          const bad = chosen.bad.map((at) => `r${at}`);
          const wrong = chosen.refusedAlone.map((at) => `r${at}`).filter((name) => !bad.includes(name));
          const fail = failOn(bad, failures[failure]);
          const refuse = failOn(wrong, refused);
          const service = playService((names) => {
            if (isRefusedFirst) refuse(names);
            fail(names);
            refuse(names);
          });
          const result = await write(service, namesOf(count), { batchSize, goodForMs });
          expect([...result.culprits].toSorted()).toEqual(bad.toSorted());
          expect([...result.refusals].toSorted()).toEqual(wrong.toSorted());
          expect(result.accepted.size).toBe(count - bad.length - wrong.length);
          expect(service.underWay.most).toBeLessThanOrEqual(Math.max(4, Math.ceil(count / 7)));
        },
      ),
      { numRuns: 150 },
    );
  });

  it('is found if the first attempt has answers for all other objects', async () => {
    const service = playService(failOn(['r7', 'r8']));
    const { culprits, accepted, errors } = await write(service, namesOf(9), { batchSize: 7 });
    expect([[...culprits], accepted.size]).toEqual([['r7', 'r8'], 7]);
    expect(errors.length).toBeLessThanOrEqual(5);
    // Five systemic failures in a row open the circuit breaker.
    expect(systemic(errors).length).toBeLessThan(5);
  });

  it('costs few timeouts when it hangs, because other requests do not wait for it', async () => {
    const one = playService(failOn(['r613'], hung));
    await write(one, namesOf(1000));
    expect(one.time.ms / TIMEOUT_MS).toBeLessThanOrEqual(9);
    const read = playService(failOn(['r613'], hung));
    await write(read, namesOf(1000), { goodForMs: 10_000 });
    expect(read.time.ms / TIMEOUT_MS).toBeLessThanOrEqual(9);
  });

  it('is accepted when it recovers while it is narrowed down', async () => {
    const service = playService((names, request) => {
      if (request < 12) failOn(['r613'])(names);
    });
    const { accepted, culprits } = await write(service, namesOf(1000));
    expect([accepted.size, culprits.size]).toEqual([1000, 0]);
  });

  it('does not reduce the size of requests', async () => {
    const { learned, ...service } = playService(failOn(['r613'], hung));
    await write({ ...service, learned }, namesOf(1000));
    expect(learned[0]).toMatchObject({ outcome: 'too_slow', objects: 1000 });
    const about = { timeoutSeconds: 30, now: 0 };
    for (const good of [0, 500, 1000]) {
      const known: RequestSize = { ...FIRST_SIZE, objects: 1000, good };
      const size = learned.reduce((before, request) => learn(before, request, about), known);
      const full = { outcome: 'accepted', objects: size.objects, bytes: 1000, seconds: 0.3 } as const;
      expect(learn(size, full, about)).toMatchObject({ objects: 1000, tooMany: Infinity });
    }
    expect(learned.findLast(({ outcome }) => outcome !== 'accepted')).toMatchObject({
      outcome: 'failed_alone',
    });
  });
});

describe('an object at which the service failed before', () => {
  it('is sent alone, last and only once', async () => {
    const service = playService(failOn(['r1', 'r3']));
    const { accepted, culprits, errors } = await write(service, namesOf(6), { suspects: ['r1', 'r3', 'r4'] });
    expect(service.sent).toEqual([['r0', 'r2', 'r5'], ['r1'], ['r3'], ['r4']]);
    expect([accepted.size, [...culprits], errors]).toEqual([4, ['r1', 'r3'], []]);
    expect(service.learned.every(({ outcome }) => outcome === 'accepted' || outcome === 'failed')).toBe(true);
  });

  it('is not sent while other objects fail, and at most 20 fail in one attempt', async () => {
    const down = playService(failOn(namesOf(30)));
    const { culprits } = await write(down, namesOf(30), { suspects: ['r1'] });
    expect([down.sent.some((names) => names.join() === 'r1'), culprits.size]).toEqual([false, 0]);
    const many = playService(failOn(namesOf(30)));
    const { ends } = await write(many, namesOf(30), { suspects: namesOf(30) });
    expect(ends).toEqual([20, 30]);
  });
});

describe('a service that is down', () => {
  it.each([1, 3, 100, 1000])('gets at most two requests in an attempt, for %i objects', async (count) => {
    const service = playService(failOn(namesOf(count)));
    const { accepted, culprits, errors, requests } = await write(service, namesOf(count));
    expect([accepted.size, culprits.size]).toEqual([0, 0]);
    expect(errors).toEqual(Array.from({ length: 9 }, () => 'service_failed'));
    expect(requests).toBeLessThanOrEqual(17);
  });

  it('gets the remaining objects in a few requests when it comes back', async () => {
    const service = playService((names, request) => {
      if (request <= 9) failOn(namesOf(1000))(names);
    });
    const { accepted, errors, requests } = await write(service, namesOf(1000));
    expect([accepted.size, errors.length]).toEqual([1000, 5]);
    expect(requests).toBeLessThanOrEqual(9 + 25);
  });

  it('fails no object if it goes down after the first request of a batch', async () => {
    const service = playService((_, request) => {
      if (request > 1) throw failed();
    });
    const { accepted, culprits, ends } = await write(service, namesOf(100), { batchSize: 10 });
    expect([accepted.size, culprits.size]).toEqual([10, 0]);
    expect(ends[4]).toBeLessThanOrEqual(11 + 4 * 2);
    expect(ends.at(-1)).toBeLessThanOrEqual(11 + 4 * 2 + 4 * 24);
  });

  it('gets at most twenty requests more, and fails no object, if it goes down during narrowing', async () => {
    const service = playService((names, request) => {
      failOn(['r613'])(names);
      if (request > 5) throw failed();
    });
    const { culprits, ends } = await write(service, namesOf(1000), { attempts: 5 });
    expect((ends[1] ?? 0) - 5).toBeLessThanOrEqual(20 + 4);
    expect(culprits.size).toBe(0);
  });
});
