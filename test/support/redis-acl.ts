// The rights of slotsync's user at Redis, read from docs/deployment.md.
import { readFile } from 'node:fs/promises';

export const ACL_PASSWORD = 'p%s/w@r:d?#';

/** The rules of the one ACL SETUSER line, with a password that has to be percent-encoded in an address. */
export async function readDocumentedAcl() {
  const text = await readFile(new URL('../../docs/deployment.md', import.meta.url), 'utf8');
  const [, rights] = /ACL SETUSER slotsync-worker (.*)/.exec(text) ?? [];
  if (rights === undefined) throw new Error('docs/deployment.md has no line ACL SETUSER slotsync-worker');
  return {
    name: 'slotsync-worker',
    password: ACL_PASSWORD,
    rights: rights.replace('>password', `>${ACL_PASSWORD}`),
  };
}
