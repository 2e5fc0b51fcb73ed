// Guarantee 6
// Decides whether an operation of a plan is sent, and which gate keeps it back otherwise.
import { describe, expect, it } from 'vitest';
import type { LimitedOperation, LoadFacts } from '../../src/state/schema.js';
import type { PlanGate } from '../../src/state/streams.js';
import { decide, findApproval, isRefusedTooOften, type Weighed } from '../../src/sync/limits/decide.js';
import { resolve, rooms, type Declaration } from './declare.js';

const stream = (limits: Declaration['limits'] = {}) => resolve({ rooms: rooms({ limits }) });

/** A closed gate of deactivations without an answer of an operator. */
const gate = (changes: Partial<PlanGate> = {}): PlanGate => ({
  operation: 'retire',
  reason: 'limit',
  count: 11,
  allowed: null,
  allowedDigest: null,
  isRejected: false,
  facts: { accepted: 0 },
  ...changes,
});

/** Facts of the stream and of a plan. */
type Given = Partial<Omit<Weighed, 'standing'>> & Partial<Weighed['standing']>;

/** Eleven deactivations in a hundred records: one more than the limit of the configuration's default. */
const weighed = ({
  frozen = null,
  gates = [],
  mirrorChange = null,
  refusals = null,
  ...changes
}: Given): Weighed => ({
  operation: 'retire',
  count: 11,
  accepted: 100,
  earlier: 0,
  isWhole: true,
  standing: { frozen, gates, mirrorChange, refusals },
  ...changes,
});

/** `sent`, `exempt` for what later limits do not count, or the operation and the reason of the gate. */
function verdictOf(given: Given, limits: Declaration['limits'] = {}): string {
  const verdict = decide(stream(limits), weighed(given));
  if (verdict.send) return verdict.isExempt ? 'exempt' : 'sent';
  const { gate: closed, keepsApproval } = verdict;
  return `${closed.operation} ${closed.reason}${keepsApproval ? ', approval kept' : ''}`;
}

const factsOf = (given: Given, limits: Declaration['limits'] = {}) => {
  const verdict = decide(stream(limits), weighed(given));
  return verdict.send ? undefined : verdict.facts;
};

const EMPTY = { isSourceEmpty: true } as const;
const PART = { isWhole: false } as const;
const LOAD: LoadFacts = { problem: 'too_old', ageSeconds: 90_000, maxHours: 20 };
const RESTORED = { at: '2026-01-15', why: 'was put back' };
const approved = (allowed: number, changes: Partial<PlanGate> = {}) => ({
  gates: [gate({ allowed, ...changes })],
});
const update = { operation: 'update', count: 3 } as const;
const create = { operation: 'create', count: 3 } as const;
const FEW = { count: 2, percent: 2 };
const REFUSED = gate({ operation: '*', reason: 'refused', count: 50 });
const TAKEN = { operation: 'overwrite', count: 1, formerStreams: { spaces: 1 } } as const;

describe('the decision about an operation, before any limit', () => {
  it.each<[string, Given, string]>([
    ['a freeze', { frozen: 'exams' }, '* frozen'],
    ['a freeze, even for one record', { frozen: 'exams', count: 1 }, '* frozen'],
    ['a freeze, even for a first filling', { frozen: 'exams', ...create, accepted: 0 }, '* frozen'],
    ['a freeze rather than an empty source', { frozen: 'exams', ...EMPTY }, '* frozen'],
    ['a freeze rather than doubt about the mirror', { frozen: 'exams', load: LOAD }, '* frozen'],
    ['a freeze, whatever was approved', { frozen: 'exams', ...approved(11) }, '* frozen'],
    ['a freeze rather than a closed gate', { frozen: 'exams', ...PART, gates: [REFUSED] }, '* frozen'],
    ['an empty source', { ...EMPTY, count: 1 }, 'retire empty_source'],
    ['an empty source, whatever was approved', { ...EMPTY, ...approved(11) }, 'retire empty_source'],
    ['an empty source with released records', { ...EMPTY, count: 2, released: 2 }, 'retire empty_source'],
    ['a freeze of the former stream', { ...TAKEN, isFormerFrozen: true }, 'overwrite owned_by_former_stream'],
    ['an empty source rather than doubt', { ...EMPTY, mirrorChange: RESTORED }, 'retire empty_source'],
  ])('holds the operation because of %s', (_, given, expected) => {
    expect(verdictOf(given, { retire: { count: 1000, percent: 100 } })).toBe(expected);
  });

  it('names the reason of the freeze', () => {
    expect(factsOf({ frozen: 'exams' })).toEqual({ accepted: 100, message: 'exams' });
  });
});

describe('the decision about a part of a stream, after a whole plan', () => {
  const forbidden = gate({ operation: 'update', reason: 'forbidden' });
  const limited = gate({ operation: 'update', count: 30 });
  const taken = gate({ operation: 'overwrite', reason: 'owned_by_former_stream' });
  it.each<[string, Given, string, string]>([
    ['refused, all operations', { ...update, gates: [REFUSED] }, '* refused', 'sent'],
    ['forbidden', { ...update, gates: [forbidden] }, 'update forbidden', 'sent'],
    ['forbidden, of another operation', { ...create, gates: [forbidden] }, 'sent', 'sent'],
    ['refused, at the first filling', { ...create, accepted: 0, gates: [REFUSED] }, '* refused', 'exempt'],
    ['limit', { ...update, count: 1, gates: [limited] }, 'update limit', 'sent'],
    ['limit, of another operation', { ...create, gates: [limited] }, 'sent', 'sent'],
    ['of a former stream', { ...TAKEN, gates: [taken] }, 'overwrite owned_by_former_stream', 'sent'],
    ['of a freeze that has ended', { ...update, gates: [gate({ reason: 'frozen' })] }, 'sent', 'sent'],
    ['refused before limit', { ...update, gates: [limited, REFUSED] }, '* refused', 'sent'],
  ])('follows a gate that is still closed: %s', (_, given, ofPart, ofWhole) => {
    const limits = { update: { count: 5, percent: 5 }, create: { count: 5, percent: 5 } };
    expect(verdictOf({ ...given, isWhole: false }, limits)).toBe(ofPart);
    expect(verdictOf({ ...given, isWhole: true }, limits)).toBe(ofWhole);
  });

  it('holds the part after too many refusals of single keys since the last whole plan', () => {
    const refusals = { answered: 60, refused: 51, code: 'refused_400', message: 'no', allowed: 0 };
    expect(verdictOf({ ...update, ...PART, refusals })).toBe('* refused');
    expect(factsOf({ ...update, ...PART, refusals })?.refused).toEqual({
      records: 51,
      sent: 60,
      code: 'refused_400',
      message: 'no',
    });
    expect(verdictOf({ ...update, ...PART, refusals: { ...refusals, refused: 50 } })).toBe('sent');
    expect(verdictOf({ ...update, ...PART, refusals: { ...refusals, allowed: 51 } })).toBe('sent');
    expect(verdictOf({ ...update, refusals })).toBe('sent');
  });

  it('repeats the facts of the batch that closed the gate', () => {
    const facts = { accepted: 0, message: 'no right' };
    const gates = [{ ...forbidden, facts }];
    expect(factsOf({ ...update, ...PART, gates })).toEqual(facts);
  });

  it('counts held records against the limit, and reports them', () => {
    expect(factsOf({ ...update, ...PART, gates: [limited] }, { update: FEW })).toEqual({
      accepted: 100,
      held: 30,
      limit: FEW,
    });
  });

  it('uses no approval, because the whole sync that an approval starts uses it', () => {
    const given = { ...update, ...approved(30, { operation: 'update', count: 30 }) };
    expect(verdictOf({ ...given, ...PART }, { update: FEW })).toBe('update limit');
    expect(verdictOf(given, { update: FEW })).toBe('exempt');
  });
});

describe('the decision after an operator has rejected a gate', () => {
  const rejected = gate({ operation: '*', reason: 'refused', isRejected: true });
  it('holds the whole stream if the gate was closed for refusals', () => {
    expect(verdictOf({ ...update, gates: [rejected] })).toBe('* refused');
    expect(verdictOf({ ...update, gates: [{ ...rejected, isRejected: false }] })).toBe('sent');
  });
  it('sends a whole plan if the gate was closed for a missing right', () => {
    expect(verdictOf({ ...update, gates: [{ ...rejected, reason: 'forbidden' }] })).toBe('sent');
  });
  it('sends deactivations that are within their limit by now', () => {
    expect(verdictOf({ count: 10, gates: [gate({ isRejected: true })] })).toBe('sent');
    expect(verdictOf({ gates: [gate({ isRejected: true })] })).toBe('retire limit');
  });
});

describe('the decision while the mirror is in doubt', () => {
  it.each<[string, Given, string]>([
    ['a load that is not recent', { load: LOAD }, 'stale'],
    ['another mirror than before', { mirrorChange: RESTORED }, 'restored'],
    ['both', { load: LOAD, mirrorChange: RESTORED }, 'stale'],
  ])('holds even one record of any operation: %s', (_, given, reason) => {
    for (const operation of ['create', 'update', 'retire', 'overwrite', 'repair'] as const)
      for (const isWhole of [true, false])
        expect(verdictOf({ operation, count: 1, isWhole, ...given })).toBe(`${operation} ${reason}`);
  });

  it.each<[string, Given, string]>([
    ['another mirror', { mirrorChange: RESTORED }, 'exempt'],
    ['a load that is not recent', { load: LOAD }, 'create stale'],
  ])('exempts or holds the first filling: %s', (_, given, expected) => {
    expect(verdictOf({ ...create, accepted: 0, ...given })).toBe(expected);
  });

  it('sends as many records as an approval allows', () => {
    const given = { ...update, ...approved(3, { operation: 'update', reason: 'stale' }), load: LOAD };
    expect(verdictOf(given)).toBe('exempt');
    expect(verdictOf({ ...given, count: 4 })).toBe('update stale');
  });

  it('names the load, or the change of the mirror, as the reason', () => {
    const limit = { count: 0, percent: 0 };
    expect(factsOf({ ...update, load: LOAD })).toEqual({ accepted: 100, limit, load: LOAD });
    expect(factsOf({ ...update, mirrorChange: RESTORED })).toEqual({
      accepted: 100,
      limit,
      mirrorChange: 'was put back',
    });
  });
});

describe('the decision about limits', () => {
  it('always limits deactivations and overwrites, but creates and updates only if configured', () => {
    expect(verdictOf({})).toBe('retire limit');
    expect(verdictOf({ operation: 'overwrite' })).toBe('overwrite limit');
    expect(verdictOf({ operation: 'update', count: 100 })).toBe('sent');
    expect(verdictOf({ operation: 'create', count: 100 })).toBe('sent');
    expect(verdictOf({ operation: 'update', count: 100 }, { update: {} })).toBe('update limit');
  });

  it.each<[LimitedOperation, number, number, boolean]>(
    (['create', 'update', 'retire', 'overwrite', 'repair'] as const).flatMap(
      (operation): [LimitedOperation, number, number, boolean][] => [
        [operation, 5, 10, true], // 50 %, but only five
        [operation, 6, 30, true], // 20 % and no more
        [operation, 6, 29, false],
        [operation, 29, 29, false],
      ],
    ),
  )('holds only beyond both figures: %s, %i of %i, sent: %s', (operation, count, accepted, isSent) => {
    const verdict = verdictOf({ operation, count, accepted }, { [operation]: { count: 5, percent: 20 } });
    expect(verdict).toBe(isSent ? 'sent' : `${operation} limit`);
  });

  it('holds the first record at a limit of 0 and 0, and names the limit', () => {
    expect(verdictOf({ count: 1 }, { retire: { count: 0, percent: 0 } })).toBe('retire limit');
    expect(factsOf({})).toEqual({ accepted: 100, limit: { count: 10, percent: 10 } });
  });

  it('exempts the first filling from the limit of creates, but not the second', () => {
    const limits = { create: { count: 1, percent: 0 } };
    expect(verdictOf({ ...create, accepted: 0 }, limits)).toBe('exempt');
    expect(verdictOf({ ...create, accepted: 1 }, limits)).toBe('create limit');
    expect(verdictOf({ operation: 'overwrite', count: 90, accepted: 0 })).toBe('overwrite limit');
  });
});

describe('the decision after records were sent within a day', () => {
  it.each<[string, Given, string]>([
    ['exactly the limit in total', { count: 1, accepted: 40, earlier: 9 }, 'sent'],
    ['one more than the limit', { count: 1, accepted: 40, earlier: 10 }, 'retire limit'],
    // Retired records are not among the accepted ones any more; updated ones are.
    ['deactivations: a share of all records', { count: 11, accepted: 189, earlier: 10 }, 'retire limit'],
    ['deactivations: not a share of the remaining', { count: 11, accepted: 200, earlier: 10 }, 'sent'],
    ['updates: a share of the present records', { ...update, accepted: 130, earlier: 10 }, 'sent'],
    ['updates: not a share of more records', { ...update, accepted: 129, earlier: 10 }, 'update limit'],
  ])('counts the sent records against the limit: %s', (_, given, expected) => {
    expect(verdictOf(given, { update: { count: 10, percent: 10 } })).toBe(expected);
  });

  it('reports how many records were sent earlier', () => {
    expect(factsOf({ count: 1, accepted: 40, earlier: 10 })).toMatchObject({ earlier: 10 });
  });

  it.each([
    [50, 50, 0, 'sent'],
    [60, 50, 0, 'sent'],
    [61, 50, 0, 'retire limit'],
    [60, 50, 1, 'retire limit'],
    [50, 50, 20, 'sent'],
  ])(
    'counts released records once: %i deactivations, %i released, %i earlier: %s',
    (count, released, earlier, expected) => {
      expect(verdictOf({ count, released, earlier, accepted: 90 })).toBe(expected);
    },
  );
});

describe('the decision with an approval', () => {
  const exactly = { allowedDigest: 'these' };
  const ofAll = (byOperation: object) =>
    approved(50, { operation: '*', reason: 'refused', facts: { accepted: 0, byOperation } });
  it.each<[string, Given, string]>([
    ['as many as approved', approved(11), 'exempt'],
    ['fewer than approved', approved(12), 'exempt'],
    ['more than approved', approved(10), 'retire limit'],
    ['exactly the approved records', { ...approved(11, exactly), digest: 'these' }, 'exempt'],
    ['other records than approved', { ...approved(11, exactly), digest: 'others' }, 'retire limit'],
    [
      'other records than approved, although fewer',
      { ...approved(11, exactly), digest: 'others', count: 1, earlier: 20 },
      'retire limit',
    ],
    ['approval of another operation', approved(11, { operation: 'update' }), 'retire limit'],
    ['approval of all operations, counted by operation', ofAll({ retire: 11, create: 39 }), 'exempt'],
    ['approval of all operations, fewer of this one', ofAll({ retire: 10, create: 40 }), 'retire limit'],
    ['approval of all operations, none of this one', ofAll({ create: 50 }), 'retire limit'],
    [
      'approval that waits for writes of the stream',
      { ...approved(11), hasUnsentWrites: true },
      'retire limit, approval kept',
    ],
    ['approval for too few, which does not wait', { ...approved(10), hasUnsentWrites: true }, 'retire limit'],
    ['approval that is not needed', { ...approved(11), count: 10 }, 'sent'],
  ])('sends a plan only if it is within the approval: %s', (_, given, expected) => {
    expect(verdictOf(given)).toBe(expected);
  });

  it('sends deactivations within the limit although writes are unsent', () => {
    expect(verdictOf({ count: 10, hasUnsentWrites: true })).toBe('sent');
  });

  it('reports an insufficient approval, or that an approval waits for writes', () => {
    expect(factsOf(approved(10))).toMatchObject({ approval: { allowed: 10, isOther: false } });
    expect(factsOf({ ...approved(11, exactly), digest: 'others' })).toMatchObject({
      approval: { allowed: 11, isOther: true },
    });
    const waiting = factsOf({ ...approved(11), hasUnsentWrites: true });
    expect(waiting).toMatchObject({ waitsForWrites: true });
    expect(waiting).not.toHaveProperty('approval');
  });

  it('prefers the approval of one operation to the approval of all operations', () => {
    const { gates } = ofAll({ retire: 7 });
    expect(findApproval([...gates, gate({ allowed: 11 })], 'retire')).toEqual({ allowed: 11, digest: null });
    expect(findApproval([...gates, gate()], 'retire')).toEqual({ allowed: 7, digest: null });
    expect(findApproval([gate()], 'retire')).toBeUndefined();
  });
});

describe('the decision about objects of a stream that left the configuration', () => {
  const taken = { ...TAKEN, count: 60, formerStreams: { spaces: 60 } };
  it('names the stream in a gate beyond the limit', () => {
    expect(verdictOf(taken)).toBe('overwrite owned_by_former_stream');
    expect(factsOf(taken)).toMatchObject({ formerStreams: { spaces: 60 } });
    expect(verdictOf({ ...taken, formerStreams: {} })).toBe('overwrite limit');
    expect(verdictOf({ ...taken, load: LOAD })).toBe('overwrite stale');
  });
  it('sends objects within the limit', () => {
    expect(verdictOf({ ...taken, count: 1 })).toBe('sent');
  });
});

describe('the limit of refusals', () => {
  it.each([
    [5, 10, 0, false],
    [6, 60, 0, false],
    [6, 59, 0, true],
    [6, 59, 5, true],
    [6, 59, 6, false],
  ])(
    'is exceeded or not: %i of %i answers refused, %i approved: %s',
    (refused, answered, allowed, isTooMany) => {
      const limited = stream({ refused: { count: 5, percent: 10 } });
      expect(isRefusedTooOften(limited, { refused, answered, allowed })).toBe(isTooMany);
    },
  );
});
