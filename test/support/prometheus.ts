// A Prometheus for one test, from the `prometheus` on PATH (Debian's package of that name, which has `promtool` too).
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { endWithTests } from './child-processes.js';
import { findFreePort } from './free-port.js';
import { isOnPath } from './programs.js';
import { until } from './wait.js';

/** Whether `prometheus` and `promtool` are on PATH. */
export const isPrometheusInstalled = async () =>
  (await isOnPath('prometheus')) && (await isOnPath('promtool'));

export interface Series {
  metric: Record<string, string>;
  value: number;
}

export interface AlertRule {
  name: string;
  query: string;
  health: string;
  /** ISO 8601. */
  lastEvaluation: string;
  lastError?: string;
  annotations: Record<string, string>;
  alerts: { labels: Record<string, string>; annotations: Record<string, string> }[];
}

/** Runs `promtool`; what it printed, both ways. */
export async function promtool(
  args: readonly string[],
  cwd: string,
): Promise<{ code: number; output: string }> {
  const child = spawn('promtool', args, { cwd, stdio: ['ignore', 'pipe', 'pipe'] });
  endWithTests(child);
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => (output += String(text)));
  const [code] = (await once(child, 'close')) as [number];
  return { code, output };
}

/** Starts one with this configuration; paths in it are absolute. */
export async function startPrometheus(configuration: string) {
  const folder = await mkdtemp(join(tmpdir(), 'slotsync-prometheus-'));
  const file = join(folder, 'prometheus.yml');
  await writeFile(file, configuration);
  const port = await findFreePort();
  const url = `http://127.0.0.1:${port}`;
  const child = spawn(
    'prometheus',
    [
      `--config.file=${file}`,
      `--storage.tsdb.path=${join(folder, 'data')}`,
      `--web.listen-address=127.0.0.1:${port}`,
      '--log.level=warn',
    ],
    { stdio: ['ignore', 'ignore', 'pipe'] },
  );
  endWithTests(child);
  let log = '';
  child.stderr.on('data', (text) => (log += String(text)));
  const exit = once(child, 'exit');

  const ask = async (path: string): Promise<unknown> => {
    const answer = (await (await fetch(`${url}/api/v1/${path}`)).json()) as {
      status: string;
      error?: string;
      data: unknown;
    };
    if (answer.status !== 'success') throw new Error(`${path}: ${answer.error}`);
    return answer.data;
  };
  const stop = async () => {
    child.kill('SIGKILL');
    await exit;
    await rm(folder, { recursive: true, force: true });
  };
  try {
    await until(async () => child.exitCode !== null || (await fetch(`${url}/-/ready`)).ok, {
      describe: () => `prometheus to start: ${log}`,
    });
    if (child.exitCode !== null) throw new Error(`prometheus ended at once: ${log}`);
  } catch (error) {
    await stop();
    throw error;
  }

  return {
    /** The series of an instant query. Throws what Prometheus says of a wrong one. */
    async query(expression: string): Promise<Series[]> {
      const { result } = (await ask(`query?query=${encodeURIComponent(expression)}`)) as {
        result: { metric: Record<string, string>; value: [number, string] }[];
      };
      return result.map(({ metric, value: [, value] }) => ({
        metric,
        value: Number(value.replace('Inf', 'Infinity')),
      }));
    },

    /** The alert rules, as they were evaluated last. */
    async rules(): Promise<AlertRule[]> {
      const { groups } = (await ask('rules?type=alert')) as { groups: { rules: AlertRule[] }[] };
      return groups.flatMap(({ rules }) => rules);
    },

    log: () => log,
    stop,
  };
}
