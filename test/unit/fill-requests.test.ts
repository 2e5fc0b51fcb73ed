// Writes of several batches share as few requests as possible, and each batch learns only the results of its own objects.
import { describe, expect, it } from 'vitest';
import type { Context } from '../../src/destination/client.js';
import type { PutResult } from '../../src/destination/destination.js';
import { SlotsyncError } from '../../src/errors/errors.js';
import type { Stream } from '../../src/streams/stream.js';
import { createObject } from '../../src/streams/destination-object.js';
import { createRequestFiller, nothingWritten, type Order } from '../../src/sync/apply/fill-requests.js';
import { NO_FAILURES } from '../../src/sync/apply/narrow-failures.js';
import { FIRST_SIZE, type SentRequest } from '../../src/sync/apply/request-size.js';
import { createLater } from '../support/later.js';
import { playPuts } from '../support/play-put.js';

const auto = { type: 'room', batchSize: 'auto' } as Stream;
const SYNC: Context = { lane: 'sync' };

/** Plays a service that grants slots one by one: each call of `grant` lets one request go. */
function playService({ objects = 10, judge }: { objects?: number; judge?: (sent: string[]) => void } = {}) {
  const waiting: (() => void)[] = [];
  const sent: string[][] = [];
  const learned: SentRequest[] = [];
  const time = { ms: 0 };
  let answers = Promise.resolve();
  const filler = createRequestFiller({
    clock: () => time.ms,
    sizes: {
      of: () => ({ ...FIRST_SIZE, objects }),
      learn: (_, request) => void learned.push(request),
    },
    destination: playPuts(
      async (list) => {
        const names = list.map(({ extId }) => extId);
        sent.push(names);
        await answers;
        judge?.(names);
        return new Map(names.map((extId): [string, PutResult] => [extId, { accepted: true, id: '1' }]));
      },
      () => new Promise<void>((resolve) => waiting.push(resolve)),
    ),
  });
  async function grant(times = 1): Promise<void> {
    for (let time = 0; time < times; time++) {
      await settled();
      waiting.shift()?.();
      await settled();
    }
  }
  /** Holds the answers until the returned function is called. */
  function hold(): () => void {
    const { promise, resolve } = createLater();
    answers = promise;
    return resolve;
  }
  return { filler, sent, learned, waiting, time, grant, hold };
}

/** Plays a service that refuses requests with a status. Requests have up to 16 objects. */
const playRefusals = (status: number, refuses: (names: string[]) => boolean) =>
  playService({
    objects: 16,
    judge: (names) => {
      if (refuses(names)) throw new SlotsyncError('refused', 'refused', { facts: { status } });
    },
  });

const settled = () => new Promise((resolve) => setImmediate(resolve));

function order(name: string, count: number, changes: Partial<Order> = {}) {
  const objects = Array.from({ length: count }, (_, at) => createObject(`${name}${at}`, 'room', true, []));
  return {
    objects,
    suspects: new Set<string>(),
    attempt: { earlier: NO_FAILURES, isAnswered: false },
    goodUntil: Infinity,
    isAgain: false,
    claim: { confirm: async () => undefined },
    ...changes,
  };
}

const namesOf = ({ objects }: Order) => objects.map(({ extId }) => extId);

describe('a shared request', () => {
  it('is filled with the end of one batch and the beginning of the next', async () => {
    const { filler, sent, grant } = playService();
    const orders = [order('a', 7), order('b', 7), order('c', 7)];
    const ends = orders.map((one) => filler.put(auto, SYNC, one));
    await grant(3);
    const written = await Promise.all(ends);
    expect(sent.map(({ length }) => length)).toEqual([10, 10, 1]);
    expect(sent.flat()).toEqual(orders.flatMap(namesOf));
    for (const [position, names] of orders.map(namesOf).entries()) {
      const { results, sent: noted, unsent, failure } = written[position] ?? nothingWritten();
      expect([[...results.keys()], [...noted]]).toEqual([names, names]);
      expect([unsent.size, failure]).toEqual([0, undefined]);
    }
  });

  it('takes along objects that arrive while it waits for its slot', async () => {
    const { filler, sent, waiting, grant } = playService();
    const ends = [filler.put(auto, SYNC, order('a', 2))];
    await settled();
    ends.push(filler.put(auto, SYNC, order('b', 2)));
    await settled();
    expect(waiting).toHaveLength(1);
    await grant();
    expect(sent).toEqual([['a0', 'a1', 'b0', 'b1']]);
    await Promise.all(ends);
  });

  it('does not mix lanes, types or fixed sizes', async () => {
    const { filler, sent, grant } = playService({ objects: 1000 });
    const ends = [
      filler.put(auto, SYNC, order('a', 2)),
      filler.put(auto, { lane: 'incremental' }, order('b', 120)),
      filler.put({ ...auto, type: 'course' }, SYNC, order('c', 2)),
      filler.put({ ...auto, batchSize: 3 }, SYNC, order('d', 3)),
      filler.put({ ...auto, batchSize: 3 }, SYNC, order('e', 3)),
    ];
    await grant(6);
    await Promise.all(ends);
    // Requests of changes stay small, whatever was learned.
    expect(sent.map(({ length }) => length).toSorted((a, b) => a - b)).toEqual([2, 2, 3, 3, 20, 100]);
  });

  it('leaves out the objects of a batch that has lost its claim, and sends the rest', async () => {
    const { filler, sent, grant } = playService();
    const lost = new SlotsyncError('claim_lost', 'another batch has taken over some of the records');
    const losing = order('a', 3, { claim: { confirm: () => Promise.reject(lost) } });
    const ends = Promise.all([losing, order('b', 3)].map((one) => filler.put(auto, SYNC, one)));
    await grant(2);
    const [first, second] = await ends;
    expect(sent).toEqual([['b0', 'b1', 'b2']]);
    expect(first).toMatchObject({ failure: { error: lost }, results: new Map(), sent: new Set() });
    expect(second?.failure).toBeUndefined();
  });

  it('leaves out objects that were read too long ago, and sends them first once they are read again', async () => {
    const { filler, sent, time, grant } = playService({ objects: 2 });
    const old = filler.put(auto, SYNC, order('a', 4, { goodUntil: 5 }));
    const late = filler.put(auto, SYNC, order('b', 4));
    await grant();
    time.ms = 6;
    await grant();
    expect([...(await old).unsent]).toEqual(['a2', 'a3']);
    const again = filler.put(auto, SYNC, order('c', 2, { isAgain: true }));
    await grant(2);
    expect(sent.join(' ')).toBe('a0,a1 b0,b1 c0,c1 b2,b3');
    await Promise.all([late, again]);
  });

  it('does not delay the return of outdated objects while it is in flight', async () => {
    const { filler, sent, time, grant, hold } = playService({ objects: 2 });
    const answered = hold();
    const old = filler.put(auto, SYNC, order('a', 4, { goodUntil: 5 }));
    await grant();
    time.ms = 6;
    await grant();
    answered();
    expect([...(await old).unsent]).toEqual(['a2', 'a3']);
    expect(sent).toEqual([['a0', 'a1']]);
  });

  it('ends all of its batches when it fails, and their remaining objects are not sent', async () => {
    const failure = new SlotsyncError('answer_lost', 'no answer arrived');
    let isDown = true;
    const judge = () => {
      if (isDown) throw failure;
    };
    const { filler, sent, learned, grant } = playService({ objects: 3, judge });
    const orders = [order('a', 2), order('b', 4), order('c', 2)];
    const ends = Promise.all(orders.map((one) => filler.put(auto, SYNC, one)));
    await settled();
    await grant();
    isDown = false;
    await grant(2);
    const [first, second, third] = await ends;
    expect([first?.failure?.error, second?.failure?.error]).toEqual([failure, failure]);
    expect(sent[0]).toEqual(['a0', 'a1', 'b0']);
    expect(learned[0]).toMatchObject({ outcome: 'failed', objects: 3 });
    expect(first?.sent.size).toBe(2);
    expect([third?.failure, third?.results.size]).toEqual([undefined, 2]);
    // Nothing of the second batch goes out after the failure is known.
    expect(sent.flat().filter((extId) => extId === 'b3')).toHaveLength(0);
  });

  it('is halved when it is refused for one object, and only that object is refused', async () => {
    const { filler, learned, grant } = playRefusals(400, (names) => names.includes('b1'));
    const ends = Promise.all([order('a', 8), order('b', 8)].map((one) => filler.put(auto, SYNC, one)));
    await grant(12);
    const accepted = (await ends).map(
      ({ results }) => [...results.values()].filter((one) => one.accepted).length,
    );
    expect(accepted).toEqual([8, 7]);
    expect(learned.every(({ outcome }) => outcome === 'accepted')).toBe(true);
  });

  it.each([
    [
      'a smaller size when it is refused but each of its parts is accepted',
      playRefusals(400, ({ length }) => length > 10),
      'accepted 8, accepted 8, too_large 16',
    ],
    [
      'no size when one of its objects is refused alone for its size',
      playRefusals(413, (names) => names.includes('a5')),
      expect.stringMatching(/^(?:accepted \d+(?:, |$))*$/),
    ],
  ])('teaches %s', async (_, { filler, learned, grant }, expected) => {
    const end = filler.put(auto, SYNC, order('a', 16));
    await grant(12);
    await end;
    expect(learned.map(({ outcome, objects }) => `${outcome} ${objects}`).join(', ')).toEqual(expected);
  });

  it('fails every waiting batch when it gets no slot', async () => {
    const closed = new SlotsyncError('limiter_closed', 'the limiter is closed');
    const failing = createRequestFiller({
      clock: () => 0,
      sizes: { of: () => FIRST_SIZE, learn: () => undefined },
      destination: playPuts(
        async () => undefined,
        () => Promise.reject(closed),
      ),
    });
    const ends = [order('a', 1), order('b', 1)].map((one) => failing.put(auto, SYNC, one));
    for (const { failure, sent } of await Promise.all(ends))
      expect({ error: failure?.error, sent: sent.size }).toEqual({ error: closed, sent: 0 });
  });
});
