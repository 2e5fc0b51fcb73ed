// Number of objects in a request, learned from the answers of services with different limits.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FIRST_SIZE, learn, type RequestSize } from '../../src/sync/apply/request-size.js';

const TIMEOUT_SECONDS = 30;

interface Service {
  /** Largest number of objects that the service takes in one request. */
  most?: number;
  /** Largest number of objects with which a request does not fail. */
  fails?: number;
  /** Largest body that the service takes. */
  mostBytes?: number;
  bytesPerObject?: number;
  secondsFor: (objects: number) => number;
}

/** Sends full requests one after the other, a second apart. Halves a refused request until it fits. */
function send(service: Service, requests: number, from: RequestSize = FIRST_SIZE, startAt = 1_000_000) {
  const { most = Infinity, fails = Infinity, mostBytes: largest = Infinity, bytesPerObject = 100 } = service;
  let size = from;
  let at = startAt;
  const sent: number[] = [];
  let refused = 0;
  const attempt = (objects: number, isHalf = false) => {
    at += 1000;
    const bytes = objects * bytesPerObject;
    const isRefused = objects > most || bytes > largest;
    const seconds = service.secondsFor(objects);
    const answered = seconds > TIMEOUT_SECONDS ? 'too_slow' : 'accepted';
    const outcome = isRefused ? 'too_large' : objects > fails ? 'failed' : answered;
    sent.push(objects);
    if (isRefused && objects > 1) {
      if (!isHalf) refused++;
      attempt(Math.ceil(objects / 2), true);
      attempt(Math.floor(objects / 2), true);
    }
    if (isRefused && objects === 1) return; // it is refused for itself
    size = learn(size, { outcome, objects, seconds }, { timeoutSeconds: TIMEOUT_SECONDS, now: at });
  };
  while (sent.length < requests) attempt(size.objects);
  return { size, sent, refused, at };
}

const quick: Service = { secondsFor: (objects) => 0.02 + 0.0003 * objects };

describe('the size of requests', () => {
  it('begins at 100 and doubles with every full request that is answered well', () => {
    expect(send(quick, 6).sent).toEqual([100, 200, 400, 800, 1000, 1000]);
    expect(send(quick, 3).size).toMatchObject({ objects: 800, good: 400 });
  });

  it('settles below the limit of the service within twenty requests and with few refusals', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 1200 }), (most) => {
        const { size, refused } = send({ ...quick, most }, 300);
        expect(size.objects).toBeLessThanOrEqual(Math.min(most, 1000));
        expect(size.objects).toBeGreaterThanOrEqual(Math.min(1000, Math.max(1, Math.floor(most * 0.85))));
        expect(refused).toBeLessThanOrEqual(10);
      }),
    );
    const { size, sent, refused } = send({ ...quick, most: 250 }, 20);
    expect(size.objects).toBe(250);
    expect(sent.slice(-3)).toEqual([250, 250, 250]);
    expect(refused).toBe(3);
  });

  it('maximizes the objects in a second, not the objects in a request', () => {
    // 500 at a time are the best: 250 a second; 1000 take 4 s.
    const { size } = send({ secondsFor: (objects) => (objects / 500) ** 2 }, 60);
    expect(size.objects).toBeGreaterThanOrEqual(400);
    expect(size.objects).toBeLessThanOrEqual(600);
  });

  it('stops growing at a quarter of the timeout, and shrinks at half of the timeout', () => {
    expect(send({ secondsFor: () => 8 }, 5).size.objects).toBe(100);
    const slow = send({ secondsFor: (objects) => objects / 10 }, 12).size;
    expect(slow.objects).toBeLessThan(150);
    expect(send({ secondsFor: () => 20 }, 1).size.objects).toBe(50);
  });

  it('ignores requests that are not full', () => {
    const circumstances = { timeoutSeconds: TIMEOUT_SECONDS, now: 0 };
    const request = { outcome: 'accepted', objects: 40, seconds: 20 } as const;
    expect(learn(FIRST_SIZE, request, circumstances)).toEqual(FIRST_SIZE);
    expect(learn(FIRST_SIZE, { ...request, outcome: 'too_slow' }, circumstances)).toEqual(FIRST_SIZE);
  });

  it('changes once for several refused requests of the same size', () => {
    const circumstances = { timeoutSeconds: TIMEOUT_SECONDS, now: 5 };
    const known = { ...FIRST_SIZE, objects: 400, good: 200 };
    const request = { outcome: 'too_large', objects: 400, seconds: 0.1 } as const;
    const once = learn(known, request, circumstances);
    expect(once).toMatchObject({ objects: 200, tooMany: 400 });
    expect(learn(once, request, circumstances)).toEqual(once);
  });

  it('shrinks when larger objects are refused, and grows again', () => {
    const service = { ...quick, mostBytes: 500_000 };
    const light = send({ ...service, bytesPerObject: 2000 }, 30);
    expect(light.sent.at(-1)).toBe(250);
    const heavy = send({ ...service, bytesPerObject: 10_000 }, 30, light.size, light.at);
    expect(heavy.refused).toBeLessThanOrEqual(5);
    expect(heavy.sent.at(-1)).toBeGreaterThanOrEqual(45);
    const later = send({ ...service, bytesPerObject: 2000 }, 50, heavy.size, heavy.at + 3_600_001);
    expect(later.size.objects).toBeGreaterThanOrEqual(225);
  });

  it('goes back from a size that fails and never worked before', () => {
    const { size, sent, at } = send({ ...quick, fails: 300 }, 30);
    expect(size.objects).toBeGreaterThanOrEqual(270);
    expect(size.objects).toBeLessThanOrEqual(300);
    expect(sent.filter((objects) => objects > 300).length).toBeLessThanOrEqual(5);
    // A service that is down says nothing.
    expect(send({ ...quick, fails: 0 }, 20, size, at).size).toEqual(size);
  });

  it('recovers soon after some minutes without an answer', () => {
    const before = send(quick, 10);
    expect(before.size.objects).toBe(1000);
    const down = send({ secondsFor: () => 40 }, 20, before.size, before.at);
    expect(down.size.objects).toBe(1);
    expect(send(quick, 12, down.size, down.at).size.objects).toBe(1000);
    const slower = send({ secondsFor: (objects) => (objects > 300 ? 40 : 1) }, 60, down.size, down.at);
    expect(slower.size.objects).toBeGreaterThanOrEqual(255);
    expect(slower.size.objects).toBeLessThanOrEqual(300);
    expect(slower.sent.filter((objects) => objects > 300).length).toBeLessThanOrEqual(5);
  });

  it('finds the best size although many requests are in flight', () => {
    const secondsFor = (objects: number) => (objects / 500) ** 2;
    let size = FIRST_SIZE;
    let at = 1_000_000;
    const underWay: { objects: number; answeredAt: number }[] = [];
    for (let answers = 0; answers < 300; answers++) {
      for (; underWay.length < 12; at += 50)
        underWay.push({ objects: size.objects, answeredAt: at + secondsFor(size.objects) * 1000 });
      underWay.sort((a, b) => a.answeredAt - b.answeredAt);
      const { objects = 0, answeredAt = 0 } = underWay.shift() ?? {};
      at = Math.max(at, answeredAt);
      const request = { outcome: 'accepted', objects, seconds: secondsFor(objects) } as const;
      size = learn(size, request, { timeoutSeconds: TIMEOUT_SECONDS, now: at });
    }
    expect(size.objects).toBeGreaterThanOrEqual(400);
    expect(size.objects).toBeLessThanOrEqual(650);
  });

  it.each<[string, Partial<Service>, number]>([
    ['takes all', {}, 1000],
    ['takes 250', { most: 250 }, 250],
    ['takes 700', { most: 700 }, 700],
    ['fails above 300', { fails: 300 }, 300],
    ['takes 100 kB', { mostBytes: 100_000, bytesPerObject: 500 }, 200],
    ['takes 1 MB', { mostBytes: 1_000_000, bytesPerObject: 4000 }, 250],
    ['is slower in all above 500', { secondsFor: (objects) => (objects / 500) ** 2 }, 500],
  ])('reaches nine tenths of the best possible rate at a service that %s', (_, changes, best) => {
    const service = { ...quick, ...changes };
    const { most = Infinity, fails = Infinity, mostBytes = Infinity, bytesPerObject = 100 } = service;
    let [done, cost] = [0, 0];
    for (const objects of send(service, 1000).sent) {
      if (done >= 100_000) break;
      const isTaken = objects <= Math.min(most, fails) && objects * bytesPerObject <= mostBytes;
      if (isTaken) done += objects;
      cost += 1 + service.secondsFor(objects);
    }
    expect(done / cost).toBeGreaterThanOrEqual((0.9 * best) / (1 + service.secondsFor(best)));
  });

  it('tries a refused size once more after an hour', () => {
    const settled = send({ ...quick, most: 250 }, 30);
    const soon = send({ ...quick, most: 250 }, 50, settled.size, settled.at);
    expect(soon.refused).toBe(0);
    const later = send({ ...quick, most: 250 }, 50, settled.size, settled.at + 3_600_001);
    expect(later.refused).toBe(1);
    expect(later.size.objects).toBe(250);
    const raised = send(quick, 10, settled.size, settled.at + 3_600_001);
    expect(raised.size.objects).toBe(1000);
  });
});
