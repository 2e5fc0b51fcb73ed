// Dockerfile, docker-compose.yml, the manifest for Kubernetes and the unit file, checked without Docker, a cluster or an init
// system.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SETTING_NAMES } from '../../src/config/settings.js';
import { endWithTests } from '../support/child-processes.js';
import { findFreePort } from '../support/free-port.js';
import { isOnPath } from '../support/programs.js';
import { isRedisInstalled } from '../support/redis-server.js';
import { until } from '../support/wait.js';

const [hasRedis, hasSystemd] = await Promise.all([isRedisInstalled(), isOnPath('systemd-analyze')]);
const root = fileURLToPath(new URL('../../', import.meta.url));
const read = (file: string) => readFileSync(path.join(root, file), 'utf8');
const compose = read('docker-compose.yml');

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'slotsync-deployment-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

describe('the Dockerfile and docker-compose.yml', () => {
  it('name each image by an exact version or a digest, which a tool renews', () => {
    const images = [
      ...[...read('Dockerfile').matchAll(/^FROM (\S+)/gm)].map(([, image]) => image),
      ...[...compose.matchAll(/^ +image: (\S+)/gm)].map(([, image]) => image),
    ].filter((image) => image !== 'slotsync:latest');
    expect(images.length).toBeGreaterThan(3);
    for (const image of images) expect(image).toMatch(/:\d+\.\d+(\.\d+)?-|@sha256:/);
    expect((JSON.parse(read('.github/renovate.json')) as { extends: string[] }).extends).toContain(
      'docker:pinDigests',
    );
  });

  it('install no package that runs its own scripts', () => {
    const installs = read('Dockerfile').match(/^RUN npm (ci|install).*/gm) ?? [];
    expect(installs).toHaveLength(2);
    for (const line of installs) expect(line).toContain('--ignore-scripts');
  });

  it('run every service on a read-only root file system, without capabilities', () => {
    const [shared = '', services = ''] = compose.split(/^(?:services|volumes):$/m);
    const [, ...texts] = services.split(/^ {2}(?=\w+:$)/m);
    expect(texts).toHaveLength(4);
    for (const service of texts) {
      const text = service.includes('<<: *slotsync') ? shared + service : service;
      for (const line of ['read_only: true', 'cap_drop: [ALL]', 'no-new-privileges:true'])
        expect(text).toContain(line);
    }
  });

  it.skipIf(!hasRedis)('start Redis in the place of its shell, with a password', async () => {
    const [, script = ''] = /command:\n +- sh\n +- -c\n +- >-\n((?: {8}.+\n)+)/.exec(compose) ?? [];
    const port = await findFreePort();
    const file = path.join(folder, 'redis.conf');
    const here = script.replaceAll('$$', '$').replaceAll('/tmp/redis.conf', file).replaceAll(/\n +/g, ' ');
    const arguments_ = `${here.trim()} --port ${port} --dir ${folder} --bind 127.0.0.1`;
    const env = { PATH: process.env['PATH'], REDISCLI_AUTH: 'p4ssw0rd' };
    const redis = spawn('sh', ['-c', arguments_], { env, stdio: 'ignore' });
    endWithTests(redis);
    await until(async () => (await ask(port, 'PING')).startsWith('-NOAUTH'), {
      describe: 'Redis to refuse',
    });
    expect(await ask(port, 'AUTH p4ssw0rd\r\nCONFIG GET maxmemory-policy')).toMatch(/\+OK[^]*noeviction/);
    const ended = once(redis, 'exit');
    redis.kill(); // reaches Redis itself, which stands in the place of the shell
    await ended;
  });
});

describe('the manifest for Kubernetes', () => {
  const manifest = read('examples/kubernetes/slotsync.yaml');
  const readme = read('examples/kubernetes/README.md');
  const count = (text: string) => manifest.split(text).length - 1;
  const environment = new Map(
    [...manifest.matchAll(/\{ name: ([A-Z_]+), value: '?([^ ']+)'? \}/g)].map(
      ([, name = '', value = '']) => [name, value] as const,
    ),
  );

  it('sets only settings that exist, and reads every secret from a file that the README makes', () => {
    expect(SETTING_NAMES).toEqual(expect.arrayContaining([...environment.keys()]));
    const secrets = [...environment].filter(([name]) => SETTING_NAMES.includes(`${name}_FILE`));
    expect(secrets).toEqual([]);
    const files = [...environment].filter(([name]) => name.endsWith('_FILE'));
    for (const [name, file] of files)
      expect(file).toBe(`/etc/slotsync/secrets/${name.replace(/_FILE$/, '').toLowerCase()}`);
    const made = [...readme.matchAll(/--from-file=(\w+)(?=[ \n])/g)].map(([, name = '']) => name);
    expect(made.toSorted()).toEqual(files.map(([, file]) => path.basename(file)).toSorted());
    expect(readme).toContain(
      `configmap slotsync --from-file=${path.basename(environment.get('SLOTSYNC_CONFIG') ?? '')}`,
    );
  });

  it('runs containers without privileges, on a read-only root file system', () => {
    const containers = count('image: ');
    expect(containers).toBe(2);
    for (const anchor of ['securityContext', 'volumeMounts', 'env', 'resources'])
      expect(manifest).toMatch(new RegExp(`${anchor}: &(\\w+)[^]*${anchor}: \\*\\1\n`));
    for (const line of [
      'allowPrivilegeEscalation: false',
      'readOnlyRootFilesystem: true',
      'capabilities: { drop: [ALL] }',
      'runAsNonRoot: true',
      'seccompProfile: { type: RuntimeDefault }',
      'automountServiceAccountToken: false',
    ])
      expect(count(line), line).toBe(1);
  });

  it('leaves a stop as much time as systemd and Compose', () => {
    const [, seconds] = /terminationGracePeriodSeconds: (\d+)/.exec(manifest) ?? [];
    expect(compose).toContain(`stop_grace_period: ${seconds}s`);
    expect(read('examples/systemd/slotsync-worker.service')).toContain(`TimeoutStopSec=${seconds}\n`);
  });

  it('probes liveness at /healthz and readiness at /readyz, on the port of the setting', () => {
    expect(manifest).toMatch(/livenessProbe:\n +httpGet: \{ path: \/healthz, port: http \}/);
    expect(manifest).toMatch(/readinessProbe:\n +httpGet: \{ path: \/readyz, port: http \}/);
    const port = environment.get('HTTP_PORT');
    expect(count(`{ name: http, containerPort: ${port} }`)).toBe(1);
    expect(manifest).toMatch(/publishNotReadyAddresses: true\n/);
  });
});

/** Returns the answer of Redis, or an empty text while Redis does not listen. */
function ask(port: number, command: string): Promise<string> {
  return new Promise((resolve) => {
    let answer = '';
    const socket = connect(port, '127.0.0.1', () => socket.write(`${command}\r\nQUIT\r\n`));
    socket.on('data', (chunk) => (answer += chunk.toString()));
    socket.on('error', () => resolve(''));
    socket.on('close', () => resolve(answer));
  });
}

describe.skipIf(!hasSystemd)('the unit file of a worker', () => {
  const unit = read('examples/systemd/slotsync-worker.service');
  const analyze = (...args: string[]) => {
    const { status, stdout, stderr } = spawnSync('systemd-analyze', args, { encoding: 'utf8' });
    return { status, text: stdout + stderr };
  };

  it('is understood by systemd in every line', () => {
    const file = path.join(folder, 'slotsync-worker.service');
    // The program is not where it will be installed.
    writeFileSync(file, unit.replace(/^ExecStart=\S+/m, `ExecStart=${process.execPath}`));
    expect(analyze('verify', file)).toEqual({ status: 0, text: '' });
  });

  it('has a low exposure level', () => {
    const { text } = analyze(
      'security',
      '--offline=yes',
      '--no-pager',
      path.join(root, 'examples/systemd/slotsync-worker.service'),
    );
    const [, exposure] = /Overall exposure level for \S+ (\d+\.\d+)/.exec(text) ?? [];
    expect(Number(exposure), text).toBeLessThanOrEqual(1.5);
  });

  it('passes each secret as a credential, and not in the environment', () => {
    const credentials = [...unit.matchAll(/^LoadCredential=(\w+):/gm)].map(([, name]) => name ?? '');
    expect(credentials).toEqual(['mirror_database_url', 'state_database_url', 'api_key']);
    for (const name of credentials)
      expect(unit).toContain(`Environment=${name.toUpperCase()}_FILE=%d/${name}\n`);
  });
});
