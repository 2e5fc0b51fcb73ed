// Parsing of addresses. test/e2e/redis.test.ts runs the program with refused Redis addresses.
import { chmodSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  isUnencryptedRemote,
  parsePostgresAddress,
  parseRedisAddress,
} from '../../src/connections/addresses.js';
import { createFolder } from '../support/folders.js';
import { refusalOf } from './declare.js';

const folder = createFolder('addresses');

const file = (name: string, text: string, mode = 0o600) => {
  const at = path.join(folder, name);
  writeFileSync(at, text);
  chmodSync(at, mode);
  return at;
};
const PEM = '-----BEGIN CERTIFICATE-----\n';

describe('a PostgreSQL address', () => {
  it.each([
    ['postgres://u:p@db/campus', { host: 'db', port: 5432, user: 'u', password: 'p', database: 'campus' }],
    ['postgresql://u@db:6543/campus', { port: 6543, password: undefined }],
    ['postgres://u:a%25b%2Fc%40d@db/campus', { password: 'a%b/c@d' }],
    ['postgres://u:p@ss@db/campus', { host: 'db', password: 'p@ss' }],
    ['postgres://u@[::1]:5433/campus', { host: '::1', port: 5433 }],
    ['postgres://u@%2Frun%2Fpostgresql/campus', { host: '/run/postgresql', port: 5432 }],
    ['postgres://u@db/Campus%20mirror', { database: 'Campus mirror' }],
  ])('is parsed: %s', (text, parts) => expect(parsePostgresAddress(text)).toMatchObject(parts));
});

describe('a faulty PostgreSQL address', () => {
  it.each([
    ['mysql://u:s3cret@db/campus', 'not a PostgreSQL address'],
    ['db.campus.example', 'not a PostgreSQL address'],
    ['postgres://u:s3cret@db', 'names no database'],
    ['postgres://u:s3cret@db/a/b', 'names no database'],
    ['postgres://db/campus', 'names no user'],
    ['postgres:///campus', 'names no host'],
    ['postgres://u:s3cret%@db/campus', 'contains a % that is not percent-encoded; in a user or password'],
    ['postgres://u:s3/cret@db/campus', 'percent-encode % as %25, / as %2F'],
    ['postgres://u:12/s3cret@db/campus', 'percent-encode'],
    ['postgres://u:s3?cret@db/campus', 'percent-encode'],
    ['postgres://u:s3#cret@db/campus', 'percent-encode'],
    ['postgres://u:s3cret@db:0/campus', 'the port must be a whole number from 1 to 65535'],
    ['postgres://u:s3cret@db/campus?sslmode=prefer', 'sslmode is one of disable, require'],
    ['postgres://u:s3cret@db/campus?schema=x', "the parameter 'schema' is not supported"],
    ['postgres://u:s3cret@db/campus?sslrootcert=/ca.pem', 'sslrootcert has no effect without encryption'],
    ['postgres://u:s3cret@db/campus?sslmode=verify-ca', 'needs sslrootcert'],
    [
      'postgres://u:s3cret@db/campus?sslmode=verify-full&sslrootcert=/nowhere',
      '/nowhere cannot be read (ENOENT)',
    ],
    [`postgres://u:s3cret@db/campus?sslmode=require&sslrootcert=${folder}`, 'is a folder'],
    [
      `postgres://u:s3cret@db/campus?sslmode=require&sslrootcert=${file('text', 'not a certificate')}`,
      'contains no PEM text',
    ],
    [`postgres://u:s3cret@db/campus?sslmode=require&sslcert=${file('cert', PEM)}`, 'belong together'],
    [
      `postgres://u:s3cret@db/campus?sslmode=require&sslcert=${file('cert', PEM)}&sslkey=${file('key', PEM, 0o644)}`,
      'can be read by every user of this machine; run chmod 600 on it',
    ],
  ])('is refused without showing its password: %s', (text, fault) => {
    expect(() => parsePostgresAddress(text)).toThrow(fault);
    const said = String(refusalOf(() => parsePostgresAddress(text))).replaceAll(folder, ''); // random, may have s3
    expect(said).not.toMatch(/s3|cret@/);
  });
});

describe('the check for an unencrypted PostgreSQL address of another machine', () => {
  it.each([
    ['postgres://u@db.campus.example/campus', true],
    ['postgres://u@db.campus.example/campus?sslmode=require', false],
    ['postgres://u@10.1.2.3/campus?sslmode=disable', true],
    ['postgres://u@localhost/campus', false],
    ['postgres://u@127.0.0.2/campus', false],
    ['postgres://u@[::1]/campus', false],
    ['postgres://u@%2Frun%2Fpostgresql/campus', false],
  ])('judges %s: %s', (text, expected) =>
    expect(isUnencryptedRemote(parsePostgresAddress(text))).toBe(expected),
  );
});

describe('a Redis address', () => {
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
  ])('is parsed: %s', (address, parts) => {
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
  ])('is refused without showing its password: %s (%s)', (address, fault) => {
    expect(() => parseRedisAddress(address)).toThrow(fault);
    expect(() => parseRedisAddress(address)).not.toThrow(/a#b|a\?b/);
  });
});
