// A Redis address, parsed once: a single server, Sentinels, or a Cluster, with or without TLS. ioredis and BullMQ interpret
// addresses differently, and neither supports the last two.
import type { ConnectionOptions } from 'node:tls';
import { UsageError } from '../errors/errors.js';
import { decodePart, ENCODE, readPort } from './address-parts.js';
import { readCertificates, TLS_PARAMETERS } from './pem-file.js';

export interface RedisAddress {
  kind: 'server' | 'sentinel' | 'cluster';
  /** The server, the Sentinels, or nodes of the Cluster by which the others are found. */
  nodes: readonly { host: string; port: number }[];
  user: string | undefined;
  password: string | undefined;
  /** A Cluster has number 0 only. */
  database: number;
  /** The name that the Sentinels know the primary by, and how to log in at them. */
  sentinel: { name: string; user: string | undefined; password: string | undefined };
  /** False: not encrypted. As ioredis passes it to `tls.connect`. */
  tls: false | ConnectionOptions;
}

const FORM =
  'write redis://user:password@host:6379/0 (rediss for TLS), redis+sentinel://host:26379/name or redis+cluster://host:6379';
const SENTINEL_PARAMETERS = ['sentinelUser', 'sentinelPassword'];

/** Parses an address and reads the certificate files that it names. Throws UsageError, without the address's secrets. */
export function parseRedisAddress(text: string): RedisAddress {
  const [, scheme, secure, mode, authority = '', path = '', query = ''] =
    /^(redis(s?)(?:\+(sentinel|cluster))?):\/\/([^/?#]*)(?:\/([^?#]*))?(?:\?([^#]*))?$/i.exec(text) ?? [];
  if (scheme === undefined) {
    const isRedis = /^rediss?(\+(sentinel|cluster))?:\/\//i.test(text);
    throw new UsageError(`not a Redis address; ${isRedis ? ENCODE : FORM}`);
  }
  const kind = (mode?.toLowerCase() as 'sentinel' | 'cluster' | undefined) ?? 'server';
  if (/\p{Cc}/u.test(text))
    throw new UsageError('contains a control character, such as a tab or a line break');
  const parameters = new URLSearchParams(query.replaceAll('+', '%2B')); // a + in a file's name or a password is no blank
  const known = [...TLS_PARAMETERS, ...(kind === 'sentinel' ? SENTINEL_PARAMETERS : [])];
  const userEnd = authority.lastIndexOf('@');
  // A bare / or ? in the password ends the hosts too early: the @ then stands behind them.
  if (userEnd === -1 && `${path}?${query}`.includes('@'))
    throw new UsageError(`not a Redis address; ${FORM}; ${ENCODE}`);
  for (const name of parameters.keys())
    if (!known.includes(name))
      throw new UsageError(`the parameter '${name}' is not supported; supported: ${known.join(', ')}`);

  const [user = '', ...password] = userEnd === -1 ? [] : authority.slice(0, userEnd).split(':');
  return {
    kind,
    nodes: readNodes(authority.slice(userEnd + 1), kind),
    user: decodePart(user) || undefined,
    password: decodePart(password.join(':')) || undefined,
    ...readPath(decodePart(path), kind),
    sentinel: {
      name: kind === 'sentinel' ? decodePart(path.split('/')[0] ?? '') : '',
      user: parameters.get('sentinelUser') || undefined,
      password: parameters.get('sentinelPassword') || undefined,
    },
    tls: readTls(parameters, secure !== ''),
  };
}

function readNodes(hosts: string, kind: RedisAddress['kind']): RedisAddress['nodes'] {
  const nodes = hosts.split(',').map((node) => {
    const [, name, port] = /^(\[[\da-f:.%]+\]|[\w.-]+)(?::(\d+))?$/i.exec(node) ?? [];
    if (name === undefined) throw new UsageError(`names no host; ${FORM}`);
    return {
      host: name.replace(/^\[(.*)\]$/, '$1'),
      port: readPort(port, kind === 'sentinel' ? 26_379 : 6379),
    };
  });
  if (kind === 'server' && nodes.length > 1)
    throw new UsageError(`names several hosts; write redis+sentinel:// or redis+cluster://`);
  return nodes;
}

function readPath(path: string, kind: RedisAddress['kind']): { database: number } {
  const parts = path.replace(/\/$/, '').split('/');
  if (kind === 'sentinel' && parts.shift() === '')
    throw new UsageError(
      'does not name the primary; write redis+sentinel://host:26379/name, with the name that the Sentinels know it by',
    );
  const [database = '', ...others] = parts;
  if (others.length > 0 || !/^\d{0,4}$/.test(database))
    throw new UsageError(`the number of the database must be a whole number from 0 to 9999`);
  if (kind === 'cluster' && Number(database) !== 0)
    throw new UsageError('a Redis Cluster has no databases but number 0; remove the number from the address');
  return { database: Number(database) };
}

function readTls(parameters: URLSearchParams, isSecure: boolean): RedisAddress['tls'] {
  const parameter = TLS_PARAMETERS.find((name) => parameters.has(name));
  if (!isSecure) {
    if (parameter !== undefined)
      throw new UsageError(
        `${parameter} has no effect without encryption; write rediss:// instead of redis://`,
      );
    return false;
  }
  const mode = parameters.get('sslmode') ?? 'verify-full';
  if (!['verify-ca', 'verify-full'].includes(mode))
    throw new UsageError('sslmode is verify-ca or verify-full; a rediss:// address is always verified');
  return {
    ...readCertificates(parameters, mode),
    rejectUnauthorized: true,
    // The nodes of a Cluster and the servers behind Sentinels are often known by addresses that no certificate has.
    ...(mode === 'verify-ca' ? { checkServerIdentity: () => undefined } : {}),
  };
}
