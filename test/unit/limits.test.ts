// Guarantee 6
// What is let go and what waits for a person, as a table of figures.
import { describe, expect, it } from 'vitest';
import { explainHold, hasLimit, type LimitFacts } from '../../src/sync/limits/mass-change-limits.js';
import { describeReason, describeReasonAndCommand } from '../../src/sync/limits/hold-reason.js';
import { holdToPoint } from '../../src/documents/holds.js';
import { plain } from '../../src/render/plain.js';
import type { RunHold } from '../../src/state/runs/holds.js';
import { HOLD } from '../support/situations.js';
import { explainRetirementHold } from '../../src/sync/object/retire.js';
import { resolve, rooms, type Declaration } from './declare.js';

const stream = (limits: Declaration['limits'] = {}) => resolve({ rooms: rooms({ limits }) });
const facts = (changes: Partial<LimitFacts>): LimitFacts => ({
  operation: 'retire',
  count: 11,
  accepted: 100,
  ...changes,
});

/** Why a plan with these facts is held. */
function reasonOf(held: LimitFacts): string | undefined {
  const { operation, runId } = held;
  const hold = explainHold(stream(), held);
  return hold && describeReasonAndCommand({ ...hold, stream: 'rooms', operation, runId });
}

describe('a limit', () => {
  it('applies to retirements always, to creates and updates where it is named', () => {
    expect(hasLimit(stream(), 'retire')).toBe(true);
    expect(hasLimit(stream(), 'update')).toBe(false);
    expect(hasLimit(stream(), 'create')).toBe(false);
    expect(hasLimit(stream({ update: {} }), 'update')).toBe(true);
    expect(explainHold(stream(), facts({ operation: 'update', count: 100 }))).toBeUndefined();
    expect(explainHold(stream(), facts({ operation: 'create', count: 100 }))).toBeUndefined();
  });

  it.each(['create', 'update', 'retire'] as const)('holds %s beyond both its figures', (operation) => {
    const limited = stream({ [operation]: { count: 5, percent: 20 } });
    const holds = (count: number, accepted: number) =>
      explainHold(limited, facts({ operation, count, accepted })) !== undefined;
    expect(holds(0, 10)).toBe(false);
    expect(holds(5, 10)).toBe(false); // 50 %, but only five
    expect(holds(6, 30)).toBe(false); // 20 % and no more
    expect(holds(6, 29)).toBe(true);
    expect(holds(29, 29)).toBe(true);
  });

  it('0 and 0 holds the first', () => {
    const limited = stream({ retire: { count: 0, percent: 0 } });
    expect(explainHold(limited, facts({ count: 1 }))).toMatchObject({ count: 1, approvable: true });
  });

  it('says how many, of how many, beyond what, and the command', () => {
    expect(explainHold(stream(), facts({}))).toEqual({
      count: 11,
      approvable: true,
      facts: { accepted: 100, limit: { count: 10, percent: 10 } },
    });
    expect(reasonOf(facts({ runId: 7 }))).toBe(
      '11 of 100 records would be deactivated, more than 10 and more than 10 %; ' +
        'if this is intended: slotsync approve 7 --stream rooms --operation retire',
    );
    expect(reasonOf(facts({ count: 1100, accepted: 10_000 }))).toMatch(/^1 100 of 10 000 records would be/);
    expect(reasonOf(facts({}))).toMatch(/a run would hold them for: slotsync approve$/);
  });
});

describe('a hold that is shown later', () => {
  it.each<[string, Partial<RunHold>, string | undefined]>([
    ['is open', {}, undefined],
    ['is approved', { state: 'approved', approvedFor: 13 }, 'Approved: run 13 does it.'],
    [
      'was approved and done',
      { state: 'used', usedBy: 13, plannedAnewBy: 13 },
      'Approved, and done by run 13.',
    ],
    ['was planned again', { state: 'replaced', plannedAnewBy: 14 }, 'Planned again by run 14.'],
    [
      'was approved and not done',
      { state: 'expired', plannedAnewBy: 14 },
      'Nothing of it was sent. Planned again by run 14.',
    ],
    ['was cancelled with its run', { state: 'expired' }, 'Nothing of it was sent.'],
  ])('%s: it says so, and only an open one asks for an answer', (_, changes, expected) => {
    const { status, next, commands } = holdToPoint({ ...HOLD, ...changes });
    expect(next && plain(next, 'UTC')).toBe(expected);
    expect(commands).toHaveLength(expected === undefined ? 2 : 0);
    expect(status).toBe(expected === undefined ? 'held' : changes.state);
  });
});

describe('the first filling of a stream', () => {
  const limited = stream({ create: { count: 1, percent: 0 } });
  it('is no mass change; the second is', () => {
    expect(explainHold(limited, facts({ operation: 'create', accepted: 0 }))).toBeUndefined();
    expect(explainHold(limited, facts({ operation: 'create', accepted: 1 }))).toBeDefined();
  });
});

describe('an empty source', () => {
  it('retires nothing, however few, however large the limits, and whatever was approved', () => {
    const limited = stream({ retire: { count: 1000, percent: 100 } });
    const hold = explainRetirementHold(limited, {
      ...facts({ count: 1, allowed: 1, released: 1 }),
      isSourceEmpty: true,
    });
    expect(hold).toMatchObject({ count: 1, approvable: false });
    expect(hold && describeReason({ ...hold, operation: 'retire' })).toContain('the source is empty');
  });
});

describe('an approval', () => {
  it('lets go as many as it allows, and fewer', () => {
    expect(explainHold(stream(), facts({ count: 12, allowed: 12 }))).toBeUndefined();
    expect(explainHold(stream(), facts({ count: 11, allowed: 12 }))).toBeUndefined();
  });

  it('does not let go more: they are held again, with what it allows', () => {
    const grown = facts({ count: 13, allowed: 12, runId: 8 });
    expect(explainHold(stream(), grown)).toMatchObject({ count: 13, approvable: true });
    expect(reasonOf(grown)).toContain(
      ', and the approval allows 12; if this is intended: slotsync approve 8 ',
    );
  });
});

describe('retirements by single changes', () => {
  it('count those of the last day: a flood that comes in drops is one all the same', () => {
    const drops = (earlier: number) => facts({ count: 1, accepted: 40, earlier });
    const drop = (earlier: number) => explainHold(stream(), drops(earlier));
    expect(drop(9)).toBeUndefined();
    expect(drop(10)).toMatchObject({ count: 1, approvable: true });
    expect(reasonOf(drops(10))).toContain('1 of 40 records would be deactivated after 10 within 24 hours');
  });
});

describe('retirements that wait for the end of their bookings', () => {
  it('were let through once, and are not weighed again', () => {
    expect(explainHold(stream(), facts({ count: 50, released: 50 }))).toBeUndefined();
    expect(explainHold(stream(), facts({ count: 60, released: 50 }))).toBeUndefined();
    expect(explainHold(stream(), facts({ count: 61, released: 50 }))).toMatchObject({ count: 61 });
    expect(
      explainHold(stream({ retire: { count: 0, percent: 0 } }), facts({ count: 5, released: 5, earlier: 3 })),
    ).toBeUndefined();
  });
});
