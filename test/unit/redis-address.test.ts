// Addresses of Redis that are understood. Those that are refused, with the line that is printed: test/e2e/redis.test.ts.
import { describe, expect, it } from 'vitest';
import { parseRedisAddress } from '../../src/connections/redis-address.js';

describe('Redis address', () => {
  it.each([
    ['redis://cache', { kind: 'server', nodes: [{ host: 'cache', port: 6379 }], database: 0, tls: false }],
    [
      'redis://:p%2Fw%25@[::1]:7000/3',
      { nodes: [{ host: '::1', port: 7000 }], password: 'p/w%', database: 3 },
    ],
    ['redis://user:a:b@c@cache', { user: 'user', password: 'a:b@c', nodes: [{ host: 'cache', port: 6379 }] }],
    ['rediss://cache', { tls: { rejectUnauthorized: true } }],
    [
      'redis+sentinel://user:pw@a,b:26380/main/2?sentinelUser=s&sentinelPassword=p+w',
      {
        kind: 'sentinel',
        nodes: [
          { host: 'a', port: 26_379 },
          { host: 'b', port: 26_380 },
        ],
        sentinel: { name: 'main', user: 's', password: 'p+w' },
        database: 2,
      },
    ],
    ['rediss+cluster://a:7001,b:7002/', { kind: 'cluster', tls: { rejectUnauthorized: true }, database: 0 }],
  ])('%s', (address, parts) => {
    expect(parseRedisAddress(address)).toMatchObject(parts);
  });

  it.each([
    ['redis://a:6379,b:6379', 'names several hosts'],
    ['redis://cache:0', 'the port must be'],
    ['redis://cache:65536', 'the port must be'],
    ['redis://u:a#b@cache', 'percent-encode'],
    ['redis://u:a?b@cache', 'percent-encode'],
    ['redis://', 'names no host'],
    ['redis://ca\tche', 'contains a control character'],
    ['rediss://cache?sslmode=disable', 'sslmode is verify-ca or verify-full'],
    ['rediss://cache?sslmode=verify-ca', 'needs sslrootcert'],
    ['redis+sentinel://a/', 'does not name the primary'],
    ['http://cache:6379', 'not a Redis address'],
  ])('%s is refused: %s, without its password', (address, fault) => {
    expect(() => parseRedisAddress(address)).toThrow(fault);
    expect(() => parseRedisAddress(address)).not.toThrow(/a#b|a\?b/);
  });
});
