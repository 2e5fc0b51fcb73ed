import { expect, test } from 'vitest';
import { isLocal } from '../../src/page/access.js';

const HOST = '127.0.0.1:8080';

test('page: a request of this machine is local; one that a proxy sends for somebody else is not', () => {
  expect(isLocal({ headers: { host: HOST }, httpVersion: '1.1' }, '127.0.0.1')).toBe(true);
  expect(isLocal({ headers: { host: '[::1]:8080' }, httpVersion: '1.1' }, '::1')).toBe(true);
  // nginx without a setting of its own: HTTP/1.0, the name of what it asks, and no header of a proxy.
  expect(isLocal({ headers: { host: HOST }, httpVersion: '1.0' }, '127.0.0.1')).toBe(false);
  expect(isLocal({ headers: { host: HOST, via: '1.1 proxy' }, httpVersion: '1.1' }, '127.0.0.1')).toBe(false);
  expect(isLocal({ headers: { host: 'rebound.example' }, httpVersion: '1.1' }, '127.0.0.1')).toBe(false);
  expect(isLocal({ headers: { host: HOST }, httpVersion: '1.1' }, '0.0.0.0')).toBe(false);
});
