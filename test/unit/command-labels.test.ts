import { expect, it } from 'vitest';
import { labelOf } from '../../src/render/html.js';

it.each([
  ['slotsync retry rooms R1', 'Send again'],
  ["slotsync retry rooms 'R 1' --retire-former", 'Deactivate them'],
  ['slotsync retry --retire-former rooms -- -R1', 'Deactivate them'],
  ["slotsync retry rooms 'a --retire-former b'", 'Send again'],
  ['slotsync retry rooms -- --retire-former', 'Send again'],
  [String.raw`slotsync retry rooms $'a\n --retire-former '`, 'Send again'],
  ['slotsync retry rooms constructor', 'Send again'],
  ['slotsync toString rooms __proto__', 'Run'],
])('%s: its label says what it does, whatever the key is', (command, label) => {
  expect(labelOf(command)).toBe(label);
});
