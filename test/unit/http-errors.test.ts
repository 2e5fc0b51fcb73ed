// Meanings of every status, at every endpoint, with every kind of body.
import { describe, expect, it } from 'vitest';
import { asTransportError, meaningOf, type Meaning } from '../../src/destination/http-errors.js';

const FIND = { method: 'POST', path: '/v1/objects/find', query: '', endpoint: 'findObjects' } as const;
const PUT = { method: 'PUT', path: '/v1/objects', query: '', endpoint: 'objects' } as const;
const SIGN_IN = {
  method: 'POST',
  path: '/v1/organizations/demo/api-keys/authenticate',
  endpoint: 'authenticate',
} as const;
const STATUSES = Array.from({ length: 500 }, (_, at) => 100 + at);

/** Returns the meaning that docs/service-contract.md documents. */
function expected(status: number, isSignIn: boolean, body: 'service' | 'page' | 'other'): Meaning {
  if (status >= 200 && status < 300) return 'read';
  if (status >= 300 && status < 400) return 'redirected';
  if (status === 429) return 'throttled';
  if (status === 401) return 'unauthorized';
  if (isSignIn && status >= 400 && status < 500 && body !== 'page') return 'unauthorized';
  if ([413, 414, 431].includes(status)) return 'refused';
  if (status < 200 || body !== 'service') return 'gateway_answered';
  if (status === 403) return 'unauthorized';
  if (status === 408 || status === 425 || status >= 500) return 'service_failed';
  return 'refused';
}

describe('the meaning of an answer', () => {
  it.each([
    ['a find', FIND],
    ['a write', PUT],
    ['authentication', SIGN_IN],
  ])('is decided at %s for every status from 100 to 599 and every kind of body', (_, call) => {
    for (const status of STATUSES)
      for (const body of ['service', 'page', 'other'] as const)
        expect(`${status} ${body} ${meaningOf(status, call, body)}`).toBe(
          `${status} ${body} ${expected(status, call === SIGN_IN, body)}`,
        );
  });
});

it.each([
  [PUT, 'no answer arrived (ECONNRESET); the service may have carried it out'],
  [FIND, 'no answer arrived (ECONNRESET)'],
] as const)(
  'a $method $path without an answer says whether the service may have carried it out',
  (call, sentence) => {
    const cause = Object.assign(new Error('read'), { code: 'ECONNRESET' });
    const error = asTransportError(cause, call, true);
    expect(error).toMatchObject({ code: 'answer_lost', message: `${call.method} ${call.path}: ${sentence}` });
  },
);
