// The files of examples/monitoring with a real Prometheus and a real worker: the alert rules pass their own tests, and every
// query of the rules and of the dashboard finds its metrics.
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createApp, type App } from '../../src/app/app.js';
import { findFreePort } from '../support/free-port.js';
import { isPrometheusInstalled, promtool, startPrometheus, type AlertRule } from '../support/prometheus.js';
import { rehearse, type Rehearsal } from '../support/rehearsal.js';
import { until } from '../support/wait.js';
import { holdRetirements } from '../support/stored-gates.js';

const FOLDER = fileURLToPath(new URL('../../examples/monitoring/', import.meta.url));
const COMMANDS = fileURLToPath(new URL('../../src/commands/', import.meta.url));
const read = (file: string) => readFileSync(path.join(FOLDER, file), 'utf8');

interface Panel {
  title: string;
  targets?: { expr: string }[];
}

/** Returns the queries of the dashboard, with the values that Grafana puts in for its variables. */
function dashboardQueries(): { title: string; query: string }[] {
  const { panels } = JSON.parse(read('dashboard.json')) as { panels: Panel[] };
  return panels.flatMap(({ title, targets = [] }) =>
    targets.map(({ expr }) => ({ title, query: expr.replaceAll('$__rate_interval', '1m') })),
  );
}

/** Rows of the state that make every query return something, even where a quiet day has nothing. */
const SEED = `
  ${holdRetirements('staff')}
  INSERT INTO slotsync.runs (kind, lane, started_by, streams, status, paused_at)
    VALUES ('backfill', 'backfill', 'command', '{staff}', 'planning', now());
  INSERT INTO slotsync.records (stream, local_key, status) VALUES ('rooms', 'gone', 'dead');
  INSERT INTO slotsync.reservations (key, verdict, seen_at) VALUES ('1', 'agrees', now()), ('2', 'differs', now());
  INSERT INTO slotsync.drift (stream, local_key, kind, seen_at) VALUES ('rooms', 'gone', 'changed', now());
  INSERT INTO slotsync.verifications (stream, verified_at, objects) VALUES ('rooms', now(), 1), ('courses', now(), 1);
  INSERT INTO slotsync.processes (id, command, host, pid, stopped_since, error_code, seen_at)
    VALUES ('x', 'worker', 'other', 1, now() - interval '1 hour', 'unauthorized', now() + interval '1 hour');`;

describe.skipIf(!(await isPrometheusInstalled()))('the files of examples/monitoring', () => {
  let world: Rehearsal;
  let app: App;
  let stopWorkers: () => Promise<void>;
  let prometheus: Awaited<ReturnType<typeof startPrometheus>>;
  let rules: AlertRule[];

  beforeAll(async () => {
    world = await rehearse({ rows: 5, sandbox: { rate: 0 } });
    const port = await findFreePort();
    app = await createWithSettings(world, port);
    const queue = await app.queue();
    await world.sql.unsafe(SEED);
    const workers = await queue.workers({});
    await queue.serveHttp(workers);
    await workers.start();
    stopWorkers = workers.stop;
    await syncAll(world);
    const quick = { scrape_interval: '500ms', evaluation_interval: '500ms', scrape_timeout: '500ms' };
    prometheus = await startPrometheus(
      Object.entries(quick)
        .reduce(
          (text, [name, value]) => text.replace(new RegExp(`${name}: \\w+`), `${name}: ${value}`),
          read('prometheus.yml'),
        )
        .replace('127.0.0.1:9464', `127.0.0.1:${port}`)
        .replace('- alerts.yml', `- ${path.join(FOLDER, 'alerts.yml')}`),
    );
    // A rate needs two different samples: one before the second run, one after it.
    const syncedAtLeast = (count: number) => async () =>
      (await prometheus.query(`sum(slotsync_records_total{outcome="synced"}) >= ${count}`)).length > 0;
    await until(syncedAtLeast(10), { describe: () => `the first run to be scraped: ${prometheus.log()}` });
    await world.sql`UPDATE rooms SET name = name || ' again'`;
    await syncAll(world);
    await until(syncedAtLeast(15), { describe: () => `the second run to be scraped: ${prometheus.log()}` });
    // A sync forgets the load of a stream that does not ask for it, so it comes after them.
    await world.sql`
      INSERT INTO slotsync.freshness (stream, loaded_at, problem, holds, max_hours, read_at)
      VALUES ('rooms', now() - interval '60 hours', 'too_old', true, 26, now())`;
    await until(async () => (await prometheus.query('slotsync_source_stale == 1')).length > 0, {
      describe: () => `the load to be scraped: ${prometheus.log()}`,
    });
    const scrapedAt = new Date();
    rules = await until(
      async () => {
        const found = await prometheus.rules();
        return found.every(({ lastEvaluation }) => new Date(lastEvaluation) > scrapedAt) && found;
      },
      { describe: () => `the rules to be evaluated: ${prometheus.log()}` },
    );
  });
  afterAll(async () => {
    await prometheus?.stop();
    await stopWorkers?.();
    await app?.close();
    await world?.close();
  });

  it('have valid rules that pass their tests, and a valid scrape configuration', async () => {
    const [config, tests] = await Promise.all([
      promtool(['check', 'config', 'prometheus.yml'], FOLDER),
      promtool(['test', 'rules', 'alerts.test.yml'], FOLDER),
    ]);
    expect(config, config.output).toMatchObject({ code: 0 });
    expect(tests, tests.output).toMatchObject({ code: 0 });
    const tested = read('alerts.test.yml');
    for (const { name } of rules) expect(tested).toContain(name);
  });

  it('have a dashboard of which a worker answers every query', async () => {
    const queries = dashboardQueries();
    expect(queries.length).toBeGreaterThan(30);
    for (const { title, query } of queries) {
      const series = await prometheus.query(query);
      expect(series.filter(({ value }) => !Number.isNaN(value)).length, `${title}: ${query}`).toBeGreaterThan(
        0,
      );
    }
  });

  it('have alerts that can be evaluated, use metrics of a worker, and fire on their cause', async () => {
    expect(rules.filter(({ health }) => health !== 'ok')).toEqual([]);
    for (const { name, query } of rules)
      for (const metric of new Set(query.match(/\bslotsync_\w+/g)))
        expect(await prometheus.query(metric), `${metric} of ${name}`).not.toEqual([]);
    const active = rules.filter(({ alerts }) => alerts.length > 0).map(({ name }) => name);
    expect(active.toSorted()).toEqual([
      'SlotsyncDrift',
      'SlotsyncHeld',
      'SlotsyncSendingStopped',
      'SlotsyncSourceStale',
    ]);
    const stopped = rules.find(({ name }) => name === 'SlotsyncSendingStopped');
    expect(stopped?.alerts[0]?.annotations['summary']).toBe(
      'Process 1 of other sends nothing (unauthorized)',
    );
  });

  it('have alerts that each name an existing command', () => {
    const commands = new Set(
      readdirSync(COMMANDS).flatMap((file) =>
        [...readFileSync(path.join(COMMANDS, file), 'utf8').matchAll(/\.command\('([\w-]+)'\)/g)].map(
          ([, name]) => name,
        ),
      ),
    );
    for (const { name, annotations } of rules) {
      const named = [...(annotations['description'] ?? '').matchAll(/`slotsync ([\w-]+)/g)];
      expect(named.length, name).toBeGreaterThan(0);
      for (const [, command] of named) expect(commands, name).toContain(command);
    }
  });
});

/** Creates the program of a worker in this process. */
function createWithSettings({ env, folder }: Rehearsal, port: number): Promise<App> {
  const before = process.env;
  process.env = { ...before, ...env, HTTP_PORT: String(port), LOG_LEVEL: 'silent' };
  try {
    return createApp({
      command: 'worker',
      needs: ['mirror', 'state', 'api'],
      configPath: path.join(folder, 'sync.config.ts'),
      isObserved: true,
    });
  } finally {
    process.env = before;
  }
}

/** Starts a sync of all streams, and waits until the worker has ended it. */
async function syncAll(world: Rehearsal): Promise<void> {
  await world.run(['sync', '--detach']);
  await until(
    async () => {
      const unfinished =
        await world.sql`SELECT id FROM slotsync.runs WHERE finished_at IS NULL AND paused_at IS NULL`;
      return unfinished.length === 0;
    },
    { describe: 'the run to end' },
  );
}
