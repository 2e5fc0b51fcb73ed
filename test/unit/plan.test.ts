// The output of `plan` for a frozen stream.
import { expect, it } from 'vitest';
import { describePlans } from '../../src/commands/plan.js';
import type { Preview } from '../../src/sync/plan/preview.js';

const NOW = new Date('2026-06-01T10:00:00Z');
const plan = (stream: string, changes: Partial<Preview> = {}): Preview => ({
  stream,
  counts: { create: 2, update: 0, retire: 0, unchanged: 0, retry: 0, dead: 0 },
  requests: 1,
  samples: [],
  unread: undefined,
  refused: 0,
  refusals: [],
  handedOver: 0,
  handovers: [],
  renamed: [],
  holds: {},
  frozen: null,
  load: undefined,
  error: undefined,
  ...changes,
});
const frozen = {
  stream: 'rooms',
  endsAt: new Date('2026-06-07T16:00:00Z'),
  reason: 'exam weeks',
  isDeclared: false,
};
const hold = {
  operation: '*',
  reason: 'frozen',
  count: 2,
  facts: { accepted: 0, message: 'exam weeks' },
} as const;
const LAYOUT = { samples: false, timeZone: 'Europe/Stockholm', columns: 100 };
const cost = (requests: number) => ({
  requests,
  rate: 20,
  latencyMs: 100,
  seconds: 1,
  endsAt: NOW,
  frozen: [frozen],
});

it('plan: a frozen stream is named with the end of its freeze, and nothing of it is promised', () => {
  const lines = describePlans([plan('rooms', { holds: { frozen: hold } })], cost(0), LAYOUT);
  expect(lines.slice(-2)).toEqual([
    'rooms is frozen until 2026-06-07 18:00 CEST (exam weeks): nothing of it is sent before.',
    'Nothing to send now.',
  ]);
  expect(lines.join()).not.toMatch(/done at|held:/);
});

it('plan: beside a frozen stream the end of the others is named', () => {
  const lines = describePlans([plan('rooms'), plan('courses')], cost(4), LAYOUT);
  expect(lines.at(-1)).toMatch(/^At most 4 requests: .*done at 2026-06-01 12:00 CEST if started now/);
});
