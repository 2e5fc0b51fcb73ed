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
  const openssl = (command: string) => run('openssl', command.split(' '), { cwd: folder });
  const newKey = '-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout';
  const isAuthority = '-addext basicConstraints=critical,CA:TRUE';
  await openssl(`req -x509 ${newKey} ca.key -out ca.pem -days 2 -subj /CN=private-authority ${isAuthority}`);
  return {
    ca: at('ca.pem'),

    /** A key and certificate for these names, such as `DNS:localhost` or `IP:127.0.0.1`. */
    async issue(name: string, altNames: readonly string[]): Promise<{ cert: string; key: string }> {
      await openssl(`req ${newKey} ${name}.key -out ${name}.csr -subj /CN=${name}`);
      await writeFile(at(`${name}.ext`), `subjectAltName=${altNames.join(',')}\n`);
      const signing = '-CA ca.pem -CAkey ca.key -CAcreateserial -days 2';
      await openssl(`x509 -req -in ${name}.csr ${signing} -out ${name}.pem -extfile ${name}.ext`);
      await chmod(at(`${name}.key`), 0o600);
      return { cert: at(`${name}.pem`), key: at(`${name}.key`) };
    },

    remove: () => rm(folder, { recursive: true, force: true }),
  };
}
