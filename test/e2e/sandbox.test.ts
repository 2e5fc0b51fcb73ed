// The sandbox as a command: its options reach the service that it plays.
import { afterEach, expect, it } from 'vitest';
import { start, type Running } from '../support/program.js';
import { until } from '../support/wait.js';

let running: Running | undefined;
afterEach(async () => {
  running?.child.kill('SIGTERM');
  await running?.finished;
});

it('sandbox --latency-per-object delays an answer by its number of objects', async () => {
  const sandbox = start(['sandbox', '--port', '0', '--json', '--latency-per-object', '3600000.5'], {});
  running = sandbox;
  await until(() => sandbox.output().includes('}\n'), { describe: () => `a sandbox: ${sandbox.output()}` });
  const { url } = JSON.parse(sandbox.output()) as { url: string };
  const object = { extId: 'room_A', typeId: 'room' };
  await fetch(`${url}/sandbox/objects`, { method: 'PUT', body: JSON.stringify(object) });
  const authorization = { authorization: 'Api-Key sandbox-key', 'x-region': 'EU_EES' };
  const path = '/v1/organizations/demo/api-keys/authenticate';
  const answer = await fetch(url + path, { method: 'POST', headers: authorization });
  const { token } = (await answer.json()) as { token: string };
  const find = (extIds: string[]) =>
    fetch(`${url}/v1/objects/find`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ idFormat: 'EXTERNAL', extIds }),
    });

  const held = find(['room_A']).catch((error: unknown) => error);
  await until(
    async () => ((await (await fetch(`${url}/sandbox/arrivals`)).json()) as unknown[]).length === 2,
    { describe: 'the find to arrive' },
  );
  expect((await find(['room_B'])).status).toBe(200);
  sandbox.child.kill('SIGTERM');
  expect(await held).toBeInstanceOf(Error);
  expect((await sandbox.finished).code).toBe(0);
});
