// Output of `plan`.
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
  kept: 0,
  broken: [],
  unowned: 0,
  holds: {},
  frozen: null,
  load: undefined,
  error: undefined,
  ...changes,
});
const endsAt = new Date('2026-06-07T16:00:00Z');
const frozen = { stream: 'rooms', endsAt, reason: 'exam weeks', isDeclared: false };
const facts = { accepted: 0, message: 'exam weeks' };
const hold = { operation: '*', reason: 'frozen', count: 2, facts } as const;
const LAYOUT = { samples: false, timeZone: 'Europe/Stockholm', columns: 100 };
const COST = { rate: 20, latencyMs: 100, seconds: 1, endsAt: NOW, frozen: [frozen] };
const cost = (requests: number) => ({ requests, ...COST });

it('plan names the end of a freeze, and promises nothing of the frozen stream', () => {
  const lines = describePlans([plan('rooms', { holds: { frozen: hold } })], cost(0), LAYOUT);
  expect(lines.slice(-2)).toEqual([
    'rooms is frozen until 2026-06-07 18:00 CEST (exam weeks): nothing of this stream is sent until then.',
    'Nothing to send now.',
  ]);
  expect(lines.join()).not.toMatch(/done at|held:/);
});

it('plan names the end of a sync of the streams beside a frozen stream', () => {
  const lines = describePlans([plan('rooms'), plan('courses')], cost(4), LAYOUT);
  expect(lines.at(-1)).toMatch(/^At most 4 requests: .*done at 2026-06-01 12:00 CEST if started now/);
});

const create = (key: string, externalId: string, ...names: string[]) => ({
  operation: 'create' as const,
  key,
  externalId,
  changes: names.map((field) => ({ field, old: [], new: ['40'] })),
  kept: [],
  problem: undefined,
});
const samples = (...shown: ReturnType<typeof create>[]) => {
  const layout = { ...LAYOUT, samples: true, columns: 80 };
  const lines = describePlans([plan('rooms', { samples: shown })], { ...cost(1), frozen: [] }, layout);
  return lines.slice(1, 1 + 2 * shown.length);
};

it('plan shows a new object in one line, with its name first, cut to the width', () => {
  const uuid = '1679091c-5a88-0faf-6fb5-e6087eb1b2dc';
  const [short, long = ''] = samples(
    create('R1', 'room_R1', 'room.seats', 'room.name'),
    create(uuid, `room_${uuid}`, 'room.seats', 'room.name'),
  );
  expect(short).toBe(`  'R1' → room_R1  room.name "40", room.seats "40"`);
  expect(long).toMatch(/^ {2}'1679091c.*…$/);
  expect(long).toHaveLength(80);
});

it('plan says of a new row that its object is there already, instead of showing no field', () => {
  expect(samples(create('R1', 'room_R1'))[0]).toBe("  'R1' → room_R1  already equal at the service");
});

it('plan names objects that move to another row, because their bookings move along', () => {
  const handovers = [
    { externalId: 'room_2', from: { stream: 'rooms', localKey: '2' }, to: '1' },
    { externalId: 'room_9', from: { stream: 'labs', localKey: '9' }, to: '3' },
  ];
  const lines = describePlans([plan('rooms', { handedOver: 3, handovers })], cost(1), LAYOUT);
  expect(lines).toContain(
    "rooms: 3 objects move to another row, with all bookings: room_2 from '2' to '1', room_9 from labs '9' to '3', ….",
  );
});

const errorMessage = "the record is linked to the object 'hand_7', which is not at the service";
it.each<[what: string, Partial<Preview>, says: string]>([
  [
    'how many deleted rows keep their objects',
    { kept: 2 },
    "rooms: 2 rows were deleted. Their objects stay as they are, because of retire: 'keep'.",
  ],
  [
    'which given-up records have a broken link, and where the next step is',
    { broken: [{ localKey: 'R7', errorMessage }] },
    `rooms 'R7' is not sent: ${errorMessage}. To see the next step: slotsync failures rooms`,
  ],
  [
    'how many objects have no record, and names match',
    { unowned: 7 },
    'rooms: the service has 7 other objects of this type, without a record. To find rows that mean the same, before the first sync: slotsync match rooms',
  ],
])('plan says %s', (_, changes, says) => {
  expect(describePlans([plan('rooms', changes)], cost(1), LAYOUT)).toContain(says);
});
