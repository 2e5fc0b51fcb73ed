import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { PutResult } from '../../src/destination/destination.js';
import { SlotsyncError } from '../../src/errors/errors.js';
import { createObject, type DestinationObject } from '../../src/streams/destination-object.js';
import { putHalving } from '../../src/sync/apply/send-request.js';

const objectsOf = (count: number) =>
  Array.from({ length: count }, (_, at) => createObject(`room_${at}`, 'room', true, []));

const accepted: PutResult = { accepted: true, id: '1' };
const acceptAll = (objects: readonly DestinationObject[]) =>
  new Map(objects.map(({ extId }) => [extId, accepted] as const));

const refused = (status: number, message = `PUT /v1/objects answered ${status}`) =>
  new SlotsyncError('refused', message, { facts: { status } });

/** Plays a service that judges whole requests. Records the objects that it was sent. */
function playService(judge: (objects: readonly DestinationObject[]) => Map<string, PutResult>) {
  const calls: string[][] = [];
  const put = async (objects: readonly DestinationObject[]) => {
    calls.push(objects.map(({ extId }) => extId));
    try {
      return { sent: objects, results: judge(objects) };
    } catch (error) {
      return { sent: objects, error };
    }
  };
  return { calls, put };
}

describe('a request that the service refuses as a whole', () => {
  const anyBatch = fc
    .integer({ min: 1, max: 130 })
    .chain((count) =>
      fc.tuple(
        fc.constant(objectsOf(count)),
        fc.subarray(objectsOf(count), { maxLength: Math.min(12, count) }),
      ),
    );

  it('is halved until exactly the culprits are refused, and all other objects are accepted', async () => {
    await fc.assert(
      fc.asyncProperty(
        anyBatch,
        fc.constantFrom(400, 404, 409, 410, 412, 422, 423),
        async ([objects, bad], status) => {
          const culprits = new Set(bad.map(({ extId }) => extId));
          const { calls, put } = playService((sent) => {
            if (sent.some(({ extId }) => culprits.has(extId))) throw refused(status, 'unknown reference');
            return acceptAll(sent);
          });
          const results = new Map<string, PutResult>();
          await putHalving(put, objects, results);

          expect([...results.keys()].toSorted()).toEqual(objects.map(({ extId }) => extId).toSorted());
          for (const [extId, result] of results) {
            expect(result).toEqual(
              culprits.has(extId) ? { accepted: false, status, message: 'unknown reference' } : accepted,
            );
          }
          const acceptedCalls = calls.filter((call) => !call.some((extId) => culprits.has(extId)));
          expect(acceptedCalls.flat().toSorted()).toEqual(
            [...results.keys()].filter((id) => !culprits.has(id)).toSorted(),
          );
          // Fifteen requests find one culprit of a hundred.
          const mostCalls = 2 * culprits.size * Math.ceil(Math.log2(objects.length)) + 1;
          expect(calls.length).toBeLessThanOrEqual(mostCalls);
        },
      ),
    );
  });

  it('is halved until it fits when it was too large', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 200 }),
        fc.integer({ min: 1, max: 60 }),
        async (count, most) => {
          const { calls, put } = playService((sent) => {
            if (sent.length > most) throw refused(413);
            return acceptAll(sent);
          });
          const results = new Map<string, PutResult>();
          await putHalving(put, objectsOf(count), results);
          expect(results).toEqual(acceptAll(objectsOf(count)));
          const fitting = calls.filter((call) => call.length <= most);
          expect(fitting.flat()).toEqual(objectsOf(count).map(({ extId }) => extId));
        },
      ),
    );
  });
});

describe('the report of requests that were too large', () => {
  it('has only lists with more objects than every accepted list, although a smaller list was refused', async () => {
    const bytesOf = ({ extId }: DestinationObject) => (extId === 'room_1' ? 450_000 : 10_000);
    const { put } = playService((sent) => {
      if (sent.reduce((sum, object) => sum + bytesOf(object), 0) > 500_000) throw refused(413);
      return acceptAll(sent);
    });
    expect((await putHalving(put, objectsOf(50), new Map())).map(({ length }) => length)).toEqual([50]);
  });
});

describe('a request whose objects are judged one by one', () => {
  it('is sent once, whatever is refused', async () => {
    const { calls, put } = playService(
      (sent) =>
        new Map(
          sent.map(({ extId }, at) => [
            extId,
            at % 2 ? accepted : { accepted: false, status: 400, message: 'mandatory field missing' },
          ]),
        ),
    );
    const results = new Map<string, PutResult>();
    await putHalving(put, objectsOf(4), results);
    expect(calls).toHaveLength(1);
    expect([...results.values()].map((result) => result.accepted)).toEqual([false, true, false, true]);
  });

  it('has no result for an object that the answer leaves out', async () => {
    const { put } = playService((sent) => acceptAll(sent.slice(1)));
    const results = new Map<string, PutResult>();
    await putHalving(put, objectsOf(3), results);
    expect([...results.keys()]).toEqual(['room_1', 'room_2']);
  });
});

describe('a failure that is no verdict on the objects', () => {
  it.each([
    new SlotsyncError('service_failed', 'answered 503', { facts: { status: 503 } }),
    new SlotsyncError('unauthorized', 'answered 403', { facts: { status: 403 } }),
    new SlotsyncError('answer_lost', 'no answer'),
    refused(405),
    new Error('a defect'),
  ])('is thrown at once: $message', async (failure) => {
    const { calls, put } = playService(() => {
      throw failure;
    });
    const results = new Map<string, PutResult>();
    await expect(putHalving(put, objectsOf(8), results)).rejects.toBe(failure);
    expect(calls).toHaveLength(1);
    expect(results.size).toBe(0);
  });

  it('keeps the results before it, and stops further requests', async () => {
    const failure = new SlotsyncError('service_failed', 'answered 503');
    const { calls, put } = playService((sent) => {
      if (sent.length === 8 || sent.some(({ extId }) => extId === 'room_1')) throw refused(400);
      if (sent.some(({ extId }) => extId === 'room_4')) throw failure;
      return acceptAll(sent);
    });
    const results = new Map<string, PutResult>();
    await expect(putHalving(put, objectsOf(8), results)).rejects.toBe(failure);
    expect([...results].map(([extId, result]) => [extId, result.accepted])).toEqual([
      ['room_0', true],
      ['room_1', false],
      ['room_2', true],
      ['room_3', true],
    ]);
    expect(calls.at(-1)).toEqual(['room_4', 'room_5', 'room_6', 'room_7']);
  });
});

describe('a request whose answer is too large', () => {
  const tooLarge = new SlotsyncError('answer_too_large', 'too large');

  it('is sent again in halves, and counts as a request that was too large', async () => {
    const { calls, put } = playService((sent) => {
      if (sent.length > 2) throw tooLarge;
      return acceptAll(sent);
    });
    const results = new Map<string, PutResult>();
    const refusedWhole = await putHalving(put, objectsOf(5), results);
    expect(calls.map(({ length }) => length)).toEqual([5, 3, 2, 1, 2]);
    expect([...results.values()]).toEqual(Array.from({ length: 5 }, () => accepted));
    expect(refusedWhole.map(({ length }) => length)).toEqual([3, 5]);
  });

  it('fails for a single object, whose acceptance stays unknown', async () => {
    const { put } = playService((sent) => {
      if (sent.some(({ extId }) => extId === 'room_3')) throw tooLarge;
      return acceptAll(sent);
    });
    const results = new Map<string, PutResult>();
    await expect(putHalving(put, objectsOf(4), results)).rejects.toBe(tooLarge);
    expect([...results.keys()]).toEqual(['room_0', 'room_1', 'room_2']);
  });
});
