// Web addresses: the service's, a webhook's, a proxy's and a collector's. No fault repeats a part of them: a webhook's path is
// a secret, and a proxy's address may contain a password. Each function throws UsageError.
import { isLoopback, refuse, refuseBadCredentials } from './address-parts.js';

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
  const url = parseWebAddress(text, 'not a web address; copy the whole of it, from https:// on');
  refuse(hasUser(url), 'contains a user or password, which is not sent; remove it');
  refuse(!isEncrypted(url), 'must be https: it would be sent unencrypted');
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
/** Within one machine nobody can listen. */
const isEncrypted = ({ protocol, hostname }: URL) => protocol === 'https:' || isLoopback(hostname);
