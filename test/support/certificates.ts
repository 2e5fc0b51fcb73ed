// A certificate authority of a test's own, by the `openssl` on PATH, and certificates that it signed.
import { execFile } from 'node:child_process';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

export type Authority = Awaited<ReturnType<typeof createAuthority>>;

/** Makes an authority in a folder of its own, which `remove` deletes. */
export async function createAuthority() {
  const folder = await mkdtemp(join(tmpdir(), 'slotsync-ca-'));
  const at = (name: string) => join(folder, name);
  const openssl = (args: readonly string[]) => run('openssl', args, { cwd: folder });
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  const subject = ['-subj', '/CN=a private authority', '-addext', 'basicConstraints=critical,CA:TRUE'];
  await openssl(['req', '-x509', ...newKey, '-keyout', 'ca.key', '-out', 'ca.pem', '-days', '2', ...subject]);
  return {
    ca: at('ca.pem'),

    /** A key and certificate for these names, such as `DNS:localhost` or `IP:127.0.0.1`. */
    async issue(name: string, altNames: readonly string[]): Promise<{ cert: string; key: string }> {
      const [key, cert, request] = [`${name}.key`, `${name}.pem`, `${name}.csr`];
      await openssl(['req', ...newKey, '-keyout', key, '-out', request, '-subj', `/CN=${name}`]);
      await writeFile(at(`${name}.ext`), `subjectAltName=${altNames.join(',')}\n`);
      const signed = ['-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-extfile', `${name}.ext`];
      await openssl(['x509', '-req', '-in', request, '-days', '2', '-out', cert, ...signed]);
      await chmod(at(key), 0o600);
      return { cert: at(cert), key: at(key) };
    },

    remove: () => rm(folder, { recursive: true, force: true }),
  };
}
