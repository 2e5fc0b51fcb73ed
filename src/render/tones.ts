// Colors of statuses on the page. A color says no more than the word of the status.
const GOOD = ['succeeded', 'synced', 'retired', 'working', 'agrees'];
const BAD = ['failed', 'dead', 'stopped', 'not seen', 'missing', 'absent', 'missing_there', 'unknown_here'];
const WAITING = [
  'held',
  'partial',
  'deferred',
  'paused',
  'pending',
  'changed',
  'inactive',
  'differs',
  'cancelled_there',
  'cancelled_here',
];
const MOVING = ['running', 'planning'];
const TONES = new Map([
  ...MOVING.map((word) => [word, 'moving'] as const),
  ...GOOD.map((word) => [word, 'good'] as const),
  ...BAD.map((word) => [word, 'bad'] as const),
  ...WAITING.map((word) => [word, 'waiting'] as const),
]);

export const toneOf = (status: string): string => TONES.get(status) ?? 'neutral';
