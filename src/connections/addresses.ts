// Parses the addresses of all servers: PostgreSQL, Redis, mail, web, and networks of proxies. Each address is parsed
// here for all drivers, because drivers interpret the same address differently, above all its TLS parameters. The
// functions throw UsageError. No message repeats a part of an address: it may be a password, or the secret path of a
// webhook.
import { BlockList, isIP } from 'node:net';
import { checkServerIdentity, type ConnectionOptions } from 'node:tls';
import { messageOf, UsageError } from '../errors/errors.js';
import { isReadableByOthers, readTextFile } from '../files/text-file.js';

const ENCODE =
  'in a user or password, percent-encode % as %25, / as %2F, @ as %40, : as %3A, ? as %3F, # as %23';

const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|::1|\[::1\])$/;

export const isLoopback = (host: string): boolean => LOOPBACK.test(host);

/** Returns the host name in a `Host` header, without the port. */
export const nameOfHost = (host: string): string => host.replace(/:\d+$/, '');

/** Decodes the percent-encoding of a user, a password or a name. Throws UsageError if the encoding is invalid. */
function decodePart(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    throw new UsageError(`contains a % that is not percent-encoded; ${ENCODE}`);
  }
}

function readPort(text: string | undefined, usual: number): number {
  const port = Number(text || usual);
  refuse(
    !Number.isInteger(port) || port < 1 || port > 65_535,
    'the port must be a whole number from 1 to 65535',
  );
  return port;
}

/** Throws UsageError if the user or the password is missing or cannot be decoded. */
function refuseBadCredentials({ username, password }: URL): void {
  refuse(
    (username === '') !== (password === ''),
    'has a user without a password, or a password without a user',
  );
  refuse(
    /%(?![\da-f]{2})/i.test(username + password),
    'contains a % in user or password that is not percent-encoded; write %25',
  );
}

export function refuse(isFault: boolean, fault: string): void {
  if (isFault) throw new UsageError(fault);
}

/** Throws UsageError if a parameter is not in the list. */
function refuseUnknown(parameters: URLSearchParams, known: readonly string[]): void {
  for (const name of parameters.keys())
    refuse(!known.includes(name), `the parameter '${name}' is not supported; supported: ${known.join(', ')}`);
}

/** Parameters of TLS encryption, the same in addresses of PostgreSQL and of Redis. */
const TLS_PARAMETERS = ['sslmode', 'sslrootcert', 'sslcert', 'sslkey'];

/**
 * Reads the CA, certificate and key files that an address names, as options of `tls.connect`. Throws UsageError if a
 * file cannot be used, or if a file is missing that `mode` or another file requires.
 */
function readCertificates(parameters: URLSearchParams, mode: string) {
  const [ca, cert, key] = ['sslrootcert', 'sslcert', 'sslkey'].map((name) => readPemFile(parameters, name));
  if ((cert === undefined) !== (key === undefined))
    throw new UsageError('sslcert and sslkey belong together: one of them is missing');
  if (mode === 'verify-ca' && ca === undefined)
    throw new UsageError('sslmode=verify-ca needs sslrootcert, the file of the certificate authority');
  return { ca, cert, key };
}

/** Reads the PEM file that a parameter names. Throws UsageError that names the parameter and the file. */
function readPemFile(parameters: URLSearchParams, name: string): string | undefined {
  const file = parameters.get(name);
  // As in libpq, `system` means the authorities that the operating system trusts.
  if (file === null || (name === 'sslrootcert' && file === 'system')) return undefined;
  let text: string;
  try {
    text = readTextFile(file);
  } catch (error) {
    throw new UsageError(`${name} ${messageOf(error)}`, { cause: error });
  }
  if (name === 'sslkey' && isReadableByOthers(file))
    throw new UsageError(`sslkey ${file} can be read by every user of this machine; run chmod 600 on it`);
  if (!text.includes('-----BEGIN'))
    throw new UsageError(`${name} ${file} contains no PEM text (-----BEGIN …)`);
  return text;
}

export interface PostgresAddress {
  /** Host name, IP address, or folder of a Unix socket, written as `%2Frun%2Fpostgresql` in the address. */
  host: string;
  port: number;
  user: string;
  /** Password in the address. If undefined, the driver uses PGPASSWORD, or the server needs no password. */
  password: string | undefined;
  database: string;
  /** Options that both drivers pass to `tls.connect`. False: the connection is not encrypted. */
  tls: false | ConnectionOptions;
}

const POSTGRES_FORM = 'write postgres://user:password@host:5432/database';
const TLS_MODES = ['disable', 'require', 'verify-ca', 'verify-full'];

/**
 * Parses an address and reads its certificate files. `sslmode` means the same as in libpq: `require` encrypts without
 * verification, unless a CA file is named. Throws UsageError without the address's secrets.
 */
export function parsePostgresAddress(text: string): PostgresAddress {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isPostgres = /^postgres(ql)?:\/\//i.test(text);
  if (!isPostgres) throw new UsageError(`not a PostgreSQL address; ${POSTGRES_FORM}`);
  // An unencoded / or ? in the password ends the host too early, so that the @ comes after the host.
  if (url === undefined || `${url.pathname}${url.search}`.includes('@') || url.hash !== '')
    throw new UsageError(`not a PostgreSQL address; ${POSTGRES_FORM}; ${ENCODE}`);
  refuseUnknown(url.searchParams, TLS_PARAMETERS);
  const host = decodePart(url.hostname).replace(/^\[(.*)\]$/, '$1');
  const [user, password] = [decodePart(url.username), decodePart(url.password)];
  const database = decodePart(url.pathname.slice(1));
  if (host === '') throw new UsageError(`names no host; ${POSTGRES_FORM}`);
  if (user === '') throw new UsageError(`names no user; ${POSTGRES_FORM}`);
  if (database === '' || database.includes('/')) throw new UsageError(`names no database; ${POSTGRES_FORM}`);
  const port = readPort(url.port, 5432);
  const parts = { host, port, user, password: password || undefined, database };
  return { ...parts, tls: readPostgresTls(url.searchParams, host) };
}

/** Returns true if passwords and rows are sent unencrypted to another machine. */
export function isUnencryptedRemote({ host, tls }: PostgresAddress): boolean {
  return tls === false && !host.startsWith('/') && !isLoopback(host);
}

function readPostgresTls(parameters: URLSearchParams, host: string): PostgresAddress['tls'] {
  const mode = parameters.get('sslmode') ?? undefined;
  if (mode !== undefined && !TLS_MODES.includes(mode))
    throw new UsageError(`sslmode is one of ${TLS_MODES.join(', ')}`);
  const files = ['sslrootcert', 'sslcert', 'sslkey'].filter((name) => parameters.has(name));
  if (mode === undefined || mode === 'disable') {
    if (files.length > 0)
      throw new UsageError(`${files[0]} has no effect without encryption; add sslmode=verify-full`);
    return false;
  }
  const certificates = readCertificates(parameters, mode);
  const isVerified = mode !== 'require' || certificates.ca !== undefined;
  return {
    ...certificates,
    rejectUnauthorized: isVerified,
    // The drivers would compare the certificate with `localhost` if the host is an IP address.
    checkServerIdentity: (_, certificate) =>
      mode === 'verify-full' ? checkServerIdentity(host, certificate) : undefined,
  };
}

export interface RedisAddress {
  kind: 'server' | 'sentinel' | 'cluster';
  /** The server, the Sentinels, or some nodes of the Cluster, which name the other nodes. */
  nodes: readonly { host: string; port: number }[];
  user: string | undefined;
  password: string | undefined;
  /** Number of the database. In a Cluster only number 0 exists. */
  database: number;
  /** Name of the primary at the Sentinels, and the credentials for the Sentinels. */
  sentinel: { name: string; user: string | undefined; password: string | undefined };
  /** Options that ioredis passes to `tls.connect`. False: the connection is not encrypted. */
  tls: false | ConnectionOptions;
}

const REDIS_FORM =
  'write redis://user:password@host:6379/0 (rediss for TLS), redis+sentinel://host:26379/name or redis+cluster://host:6379';
const SENTINEL_PARAMETERS = ['sentinelUser', 'sentinelPassword'];

/** Parses an address and reads its certificate files. Throws UsageError without the address's secrets. */
export function parseRedisAddress(text: string): RedisAddress {
  const [, scheme, secure, mode, authority = '', path = '', query = ''] =
    /^(redis(s?)(?:\+(sentinel|cluster))?):\/\/([^/?#]*)(?:\/([^?#]*))?(?:\?([^#]*))?$/i.exec(text) ?? [];
  if (scheme === undefined) {
    const isRedis = /^rediss?(\+(sentinel|cluster))?:\/\//i.test(text);
    throw new UsageError(`not a Redis address; ${isRedis ? ENCODE : REDIS_FORM}`);
  }
  const kind = (mode?.toLowerCase() as 'sentinel' | 'cluster' | undefined) ?? 'server';
  if (/\p{Cc}/u.test(text))
    throw new UsageError('contains a control character, such as a tab or a line break');
  const parameters = new URLSearchParams(query.replaceAll('+', '%2B')); // a + in a file's name or a password must not become a blank
  const known = [...TLS_PARAMETERS, ...(kind === 'sentinel' ? SENTINEL_PARAMETERS : [])];
  const userEnd = authority.lastIndexOf('@');
  // An unencoded / or ? in the password ends the list of hosts too early, so that the @ comes after the hosts.
  if (userEnd === -1 && `${path}?${query}`.includes('@'))
    throw new UsageError(`not a Redis address; ${REDIS_FORM}; ${ENCODE}`);
  refuseUnknown(parameters, known);
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
    tls: readRedisTls(parameters, secure !== ''),
  };
}

function readNodes(hosts: string, kind: RedisAddress['kind']): RedisAddress['nodes'] {
  const nodes = hosts.split(',').map((node) => {
    const [, name, port] = /^(\[[\da-f:.%]+\]|[\w.-]+)(?::(\d+))?$/i.exec(node) ?? [];
    if (name === undefined) throw new UsageError(`names no host; ${REDIS_FORM}`);
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
      'does not name the primary; write redis+sentinel://host:26379/name, with the name by which the Sentinels know the primary',
    );
  const [database = '', ...others] = parts;
  if (others.length > 0 || !/^\d{0,4}$/.test(database))
    throw new UsageError(`the number of the database must be a whole number from 0 to 9999`);
  if (kind === 'cluster' && Number(database) !== 0)
    throw new UsageError('a Redis Cluster has only database 0; remove the number from the address');
  return { database: Number(database) };
}

function readRedisTls(parameters: URLSearchParams, isSecure: boolean): RedisAddress['tls'] {
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
    // `verify-ca` ignores the name, because Cluster nodes and servers behind Sentinels are often known by IP addresses
    // that no certificate contains.
    ...(mode === 'verify-ca' ? { checkServerIdentity: () => undefined } : {}),
  };
}

export interface SmtpAddress {
  host: string;
  port: number;
  encryption: 'tls' | 'starttls' | 'none';
  credentials: { user: string; password: string } | undefined;
}

const SMTP_FORM = 'write smtps://user:password@host:465, or smtp://user:password@host:587';

/** Parses the address of a mail server. Throws UsageError without any part of the address: it may be a password. */
export function parseSmtpAddress(text: string): SmtpAddress {
  refuse(!URL.canParse(text) || !/^smtps?:$/.test(new URL(text).protocol), `not a mail server; ${SMTP_FORM}`);
  const url = new URL(text);
  const { hostname, port, username, password, search } = url;
  const isSecure = url.protocol === 'smtps:';
  refuse(hostname === '', `names no host; ${SMTP_FORM}`);
  refuse(!['', '/'].includes(url.pathname) || url.hash !== '', `contains a path or #; ${SMTP_FORM}`);
  refuse(search !== '' && search !== '?tls=none', 'contains a parameter other than tls=none');
  refuseBadCredentials(url);
  refuse(isSecure && search !== '', 'smtps is always encrypted; remove tls=none, or write smtp');
  refuse(
    search !== '' && username !== '' && !isLoopback(hostname),
    'with tls=none the password would be sent unencrypted; remove tls=none, or user and password',
  );
  return {
    host: hostname.replaceAll(/[[\]]/g, ''),
    port: port === '' ? (isSecure ? 465 : 587) : Number(port),
    encryption: isSecure ? 'tls' : search === '' ? 'starttls' : 'none',
    credentials:
      username === ''
        ? undefined
        : { user: decodeURIComponent(username), password: decodeURIComponent(password) },
  };
}

export function requireServiceAddress(text: string): void {
  const url = parseWebAddress(text, 'not a web address; write https://host');
  refuse(hasUser(url), 'contains a user or password, which the service does not use; write https://host');
  refuse(/[?#]/.test(text), 'contains ? or #; write https://host');
  refuse(
    /[^/]/.test(url.pathname),
    'contains a path; write https://host, and the path in service.prefix of the configuration',
  );
  refuse(!isEncrypted(url), 'must be https: the key would be sent unencrypted');
}

export function requireWebhookAddress(text: string): void {
  const url = parseWebAddress(text, 'not a web address; copy all of it, beginning with https://');
  refuse(hasUser(url), 'contains a user or password, which is not sent; remove it');
  refuse(!isEncrypted(url), 'must be https: the message would be sent unencrypted');
}

export function requireProxyAddress(text: string): void {
  const url = parseWebAddress(text, 'not the address of a proxy; write http://host:3128');
  refuse(
    url.pathname !== '/' || url.search !== '' || url.hash !== '',
    'contains a path, ? or #; write http://host:3128',
  );
  refuseBadCredentials(url);
}

export function requireCollectorAddress(text: string): void {
  parseWebAddress(text, 'not a web address; write http://host:4318');
}

function parseWebAddress(text: string, fault: string): URL {
  refuse(!URL.canParse(text) || !/^https?:$/.test(new URL(text).protocol), fault);
  return new URL(text);
}

const hasUser = ({ username, password }: URL) => username !== '' || password !== '';
/** True if the connection is HTTPS or stays within this machine, where nobody can intercept it. */
const isEncrypted = ({ protocol, hostname }: URL) => protocol === 'https:' || isLoopback(hostname);

/** Parses a list of addresses and networks, such as `10.0.0.7, 10.1.0.0/16, ::1`. Throws UsageError. */
export function parseNetworks(text: string): BlockList {
  const networks = new BlockList();
  for (const part of text.split(',').map((one) => one.trim())) {
    if (part === '') continue;
    const [address = '', bits, ...rest] = part.split('/');
    const [family, width] = isIP(address) === 6 ? (['ipv6', 128] as const) : (['ipv4', 32] as const);
    refuse(
      isIP(address) === 0 || rest.length > 0 || !/^\d{1,3}$/.test(bits ?? '0') || Number(bits ?? 0) > width,
      `${part} is no address or network; write 10.0.0.7, 10.1.0.0/16 or fd00::/8, separated by commas`,
    );
    networks.addSubnet(address, bits === undefined ? width : Number(bits), family);
  }
  return networks;
}

export function isWithin(networks: BlockList, address: string): boolean {
  const version = isIP(address);
  return version !== 0 && networks.check(address, version === 6 ? 'ipv6' : 'ipv4');
}
