// Guarantee 6
// Sentences about a closed gate, with the command or the step that opens it.
import { describe, expect, it } from 'vitest';
import type { Hold } from '../../src/state/schema.js';
import { describeReason, describeReasonAndCommand } from '../../src/sync/limits/hold-reason.js';

/** Eleven deactivations in a hundred records, beyond the limit, with these facts besides. */
const held = (facts: Partial<Hold['facts']> = {}, changes: Partial<Hold> = {}): Hold => ({
  operation: 'retire',
  reason: 'limit',
  count: 11,
  facts: { accepted: 100, limit: { count: 10, percent: 10 }, ...facts },
  ...changes,
});
const ofRun = (hold: Hold, runId: number | undefined = 7) =>
  describeReasonAndCommand({ ...hold, stream: 'rooms', runId });

describe('the reason of a hold', () => {
  it('names both numbers, the limit and the command', () => {
    expect(ofRun(held())).toBe(
      '11 of 100 records would be deactivated, more than 10 and more than 10 %; ' +
        'if this is intended: slotsync approve 7 --stream rooms --operation retire',
    );
    expect(ofRun(held({ accepted: 10_000 }, { count: 1100 }))).toMatch(
      /^1 100 of 10 000 records would be deactivated/,
    );
    expect(describeReasonAndCommand({ ...held(), stream: 'rooms' })).toMatch(
      /a run would hold them for: slotsync approve$/,
    );
  });

  const GONE = '11 of 100 records would be deactivated';
  const BEYOND = 'more than 10 and more than 10 %';
  it.each<[says: string, hold: Hold]>([
    [
      `1 of 100 records would be deactivated in addition to 10 in the last 23 hours, ${BEYOND}`,
      held({ earlier: 10 }, { count: 1 }),
    ],
    [
      `1 of 100 records would be updated, beside 30 that were held before, ${BEYOND}`,
      held({ held: 30 }, { operation: 'update', count: 1 }),
    ],
    [`${GONE}, ${BEYOND}, and the approval allows 10`, held({ approval: { allowed: 10, isOther: false } })],
    [
      `${GONE}, ${BEYOND}, and the approval allows exactly the 11 records that were held, and these are others`,
      held({ approval: { allowed: 11, isOther: true } }),
    ],
    [
      `${GONE}, but the source is empty, and an empty source deactivates nothing`,
      held({}, { reason: 'empty_source' }),
    ],
    [
      '11 records wait because the stream was frozen: exams',
      held({ message: 'exams' }, { operation: '*', reason: 'frozen' }),
    ],
    [
      '1 record waits because the service forbids the request: no right',
      held({ message: 'no right' }, { count: 1, reason: 'forbidden' }),
    ],
    [
      `11 of 100 records that were never accepted would take over objects of streams that left the configuration (spaces 11), ${BEYOND}`,
      held({ formerStreams: { spaces: 11 } }, { operation: 'overwrite', reason: 'owned_by_former_stream' }),
    ],
  ])('is a sentence: %s', (says, hold) => {
    expect(describeReason(hold)).toBe(says);
  });
});

describe('the step that opens a gate', () => {
  it.each<[Hold['reason'], Hold['operation'], RegExp]>([
    ['empty_source', 'retire', /Check the mirror, then: slotsync sync rooms$/],
    ['forbidden', 'retire', /Let the service permit the request, then: slotsync sync rooms$/],
    ['frozen', '*', /No action needed: a worker plans it when the freeze has ended$/],
    [
      'stale',
      'retire',
      /Load the mirror, then: slotsync sync rooms; or if .* 7 --stream rooms --operation retire$/,
    ],
    ['owned_by_former_stream', 'overwrite', /slotsync rename-stream spaces rooms; or .*: slotsync approve 7/],
    ['refused', '*', /: slotsync approve 7 --stream rooms --gate refused$/],
  ])('is named for the reason %s', (reason, operation, expected) => {
    const facts = { message: 'no', formerStreams: { spaces: 1 } };
    expect(ofRun({ ...held(facts), reason, operation })).toMatch(expected);
  });

  it('names the unsent writes that an approval waits for', () => {
    expect(ofRun(held({ waitsForWrites: true }))).toContain(
      'The approval stands. Correct or approve the creates and updates that are not sent',
    );
  });
});
