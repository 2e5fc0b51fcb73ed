// Guarantee 10
// Errors of the mirror's server. A view may have made their text.
import { expect, it } from 'vitest';
import { messageWithDetail } from '../../src/errors/errors.js';
import { asMirrorError } from '../../src/mirror/mirror-errors.js';

it('an error of the mirror that quotes a value of 10 MB is cut, together with its cause', () => {
  const cause = Object.assign(new Error(`bad: ${'x'.repeat(10_000_000)}`), { code: 'P0001' });
  const error = asMirrorError(cause);
  expect(messageWithDetail(error)).toMatch(/^the source raised an error \(P0001\): bad: x{995}…$/);
  expect(cause.message).toHaveLength(1001);
  expect(cause.stack).toMatch(/^Error: bad: x{995}…\n +at /);
});
