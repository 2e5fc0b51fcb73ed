// Random histories of requests that several batches share. Each batch must end, learn the results of its own objects
// only, and send nothing after its end.
import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { Context } from '../../src/destination/client.js';
import type { PutResult } from '../../src/destination/destination.js';
import { SlotsyncError } from '../../src/errors/errors.js';
import type { Stream } from '../../src/streams/stream.js';
import { createObject } from '../../src/streams/destination-object.js';
import { createRequestFiller } from '../../src/sync/apply/fill-requests.js';
import { FIRST_SIZE } from '../../src/sync/apply/request-size.js';
import { playPuts } from '../support/play-put.js';

const STREAM = { type: 'room', batchSize: 'auto' } as Stream;
/** Longer than any request of a history takes. */
const LONG = 60;
const turn = () => new Promise((resolve) => setImmediate(resolve));
async function turns(count: number): Promise<void> {
  for (let left = count; left > 0; left--) await turn();
}

const batch = fc.record({
  objects: fc.integer({ min: 1, max: 9 }),
  /** Times, in turns of the event loop. */
  from: fc.integer({ min: 0, max: LONG }),
  goodFor: fc.integer({ min: 3, max: 200 }),
  claimLostAt: fc.integer({ min: 20, max: 140 }),
  isAgain: fc.boolean(),
  isSlow: fc.boolean(),
  /** Number of failed attempts before, which narrow the batch down. */
  failures: fc.constantFrom(0, 0, 1, 2, 4),
  areAlone: fc.boolean(),
  /** Index of the first object that fails each request in which it is sent. */
  poisonFrom: fc.integer({ min: 0, max: 20 }),
  /** Number of objects that are suspects from the beginning. */
  suspectsTo: fc.constantFrom(0, 0, 1, 3),
  lane: fc.constantFrom<Context['lane']>('sync', 'incremental'),
});
type PlannedBatch = typeof batch extends fc.Arbitrary<infer T> ? T : never;

/** Plays a service that answers at random, by a seed. Records the objects that it was sent and that it accepted. */
function playService(random: () => number) {
  const underWay = new Set<string>();
  const accepted = new Map<string, number>();
  const sent = new Map<string, number>();
  const twice: string[] = [];
  const count = (counts: Map<string, number>, name: string) => counts.set(name, (counts.get(name) ?? 0) + 1);

  async function carryOut(names: readonly string[]): Promise<void> {
    for (const name of names) {
      if (underWay.has(name)) twice.push(name);
      underWay.add(name);
      count(sent, name);
    }
    await turns(Math.floor(random() * 4));
    for (const name of names) underWay.delete(name);
  }

  function answer(names: readonly string[]): Map<string, PutResult> {
    const results = new Map<string, PutResult>();
    for (const name of names) {
      const chance = random();
      if (chance < 0.05) continue; // nothing is said of it
      if (chance < 0.1) {
        results.set(name, { accepted: false, status: 422, message: 'refused' });
        continue;
      }
      results.set(name, { accepted: true, id: '1' });
      count(accepted, name);
    }
    return results;
  }

  const puts = playPuts(
    async (list, { signal }) => {
      if (random() < 0.1) return undefined; // the slot was not usable any more
      const names = list.map(({ extId }) => extId);
      await carryOut(names);
      signal?.throwIfAborted();
      const chance = random();
      if (chance < 0.05) return undefined; // 429
      if (chance < 0.1) throw new SlotsyncError('answer_lost', 'no answer', { facts: { reason: 'timeout' } });
      if (names.some((name) => name.startsWith('poison')))
        throw new SlotsyncError('service_failed', 'poison');
      if (chance < 0.15) throw new SlotsyncError('service_failed', 'failed');
      if (chance < 0.35) {
        const status = random() < 0.5 ? 413 : 400;
        throw new SlotsyncError('refused', 'refused', { facts: { status } });
      }
      return answer(names);
    },
    async ({ signal }) => {
      await turns(Math.floor(random() * 4));
      signal?.throwIfAborted();
      if (random() < 0.03) throw new SlotsyncError('quota_unavailable', 'no slot');
    },
  );
  return { ...puts, underWay, accepted, sent, twice };
}

it('batches that share requests end correctly in any history of answers, aborts and lost claims', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer(),
      fc.array(batch, { minLength: 1, maxLength: 12 }),
      fc.integer({ min: 1, max: 12 }),
      async (seed, batches, size) => {
        let state = seed >>> 0;
        const random = () => (state = (state * 1664525 + 1013904223) >>> 0) / 2 ** 32;
        const service = playService(random);
        const stopping = new AbortController();
        const problems: string[] = [];
        let time = 0;
        const filler = createRequestFiller({
          destination: service,
          clock: () => time,
          sizes: {
            of: () => ({ ...FIRST_SIZE, objects: size }),
            learn: () => undefined,
          },
        });

        async function write(planned: PlannedBatch, name: string): Promise<void> {
          const { from, goodFor, isAgain, isSlow, claimLostAt, lane } = planned;
          await turns(from);
          const objects = Array.from({ length: planned.objects }, (_, at) =>
            createObject(`${at < planned.poisonFrom ? '' : 'poison_'}${name}_${at}`, 'room', true, []),
          );
          const suspects = new Set(objects.slice(0, planned.suspectsTo).map(({ extId }) => extId));
          const earlier = { count: planned.failures, isBeside: planned.areAlone, areAlone: planned.areAlone };
          const context = { lane, signal: stopping.signal };
          const { results, culprits, unsent, failure, ...written } = await filler.put(STREAM, context, {
            objects,
            suspects,
            attempt: { earlier, isAnswered: false },
            goodUntil: time + goodFor,
            isAgain,
            claim: {
              async confirm() {
                if (isSlow) await turn();
                if (time > claimLostAt) throw new SlotsyncError('claim_lost', 'taken over');
              },
            },
          });
          const noted = new Set(written.sent);
          const names = objects.map(({ extId }) => extId);
          const sentByThen = names.map((one) => service.sent.get(one));
          for (const one of names) if (service.underWay.has(one)) problems.push(`${one}: ended under way`);
          await turns(LONG);
          for (const [at, one] of names.entries()) {
            const isAccepted = service.accepted.has(one);
            const isStale = unsent.has(one);
            if (service.sent.get(one) !== sentByThen[at]) problems.push(`${one}: sent after the end`);
            if (isAccepted && !results.get(one)?.accepted) problems.push(`${one}: its acceptance was lost`);
            if (isAccepted && !noted.has(one)) problems.push(`${one}: accepted, and not noted as sent`);
            if (culprits.has(one) && (results.has(one) || isStale || !noted.has(one)))
              problems.push(`${one}: taken for a culprit, and answered, given back or not sent`);
            if (isStale && results.has(one)) problems.push(`${one}: given back, and answered`);
            if (!failure && !results.has(one) && !isStale && !noted.has(one))
              problems.push(`${one}: nothing is known of it`);
          }
          for (const one of results.keys())
            if (!names.includes(one)) problems.push(`${one}: of another batch`);
        }

        const ended = { all: false };
        const ends = Promise.all(batches.map((planned, at) => write(planned, `batch${at}`)));
        void ends.then(() => (ended.all = true));
        for (; time < 3000 && !ended.all; time++) {
          if (seed % 5 === 0 && time === 40) stopping.abort(new Error('the process is stopping'));
          await turn();
        }
        expect(ended.all).toBe(true);
        expect(problems).toEqual([]);
        expect(service.twice).toEqual([]);
        expect([...service.accepted.values()].filter((times) => times > 1)).toEqual([]);
      },
    ),
    { numRuns: 300 },
  );
});
