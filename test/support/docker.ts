// Testcontainers takes seconds to find out that there is no Docker. One ping tells at once.
import { request } from 'node:http';

const PING_TIMEOUT_MS = 1_000;

/** Whether a Docker engine answers, where DOCKER_HOST or the usual socket says. */
export function isDockerThere(): Promise<boolean> {
  const host = process.env['DOCKER_HOST'] ?? 'unix:///var/run/docker.sock';
  if (!/^(unix|tcp|http):\/\//.test(host)) return Promise.resolve(false);
  const address = host.startsWith('unix://')
    ? { socketPath: host.slice('unix://'.length) }
    : { host: new URL(host).hostname, port: new URL(host).port || 2375 };

  return new Promise((resolve) => {
    const ping = request({ ...address, path: '/_ping', timeout: PING_TIMEOUT_MS }, (response) => {
      response.resume();
      resolve(response.statusCode === 200);
    });
    ping.on('timeout', () => ping.destroy());
    ping.on('error', () => resolve(false));
    ping.on('close', () => resolve(false));
    ping.end();
  });
}
