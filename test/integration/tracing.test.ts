// Guarantee 9
// The traces of runs: their nesting, the facts that they may hold, and their way to a collector.
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { pino } from 'pino';
import { afterEach, describe, expect, it } from 'vitest';
import { openBullmq } from '../../src/queue/bullmq.js';
import { migrateQueue } from '../../src/queue/migrate-queue.js';
import { createProducer } from '../../src/queue/producer.js';
import { createWorkers } from '../../src/queue/workers.js';
import { readRun } from '../../src/state/runs/read-runs.js';
import { inSpan, isRegistered } from '../../src/process/tracing.js';
import { startTracing } from '../../src/process/tracing-export.js';
import { DRIPS, openDripping } from '../support/dripping.js';
import { rehearse } from '../support/rehearsal.js';
import { settleAmidCollections } from '../support/garbage.js';
import { addRooms, keepRoomWorlds, roomsAndCourses } from '../support/room-worlds.js';
import { idOf, keepSpans, parentOf, traceOf } from '../support/tracing.js';
import { until } from '../support/wait.js';
import type { World } from '../support/world.js';

const openRooms = keepRoomWorlds();

let ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.reverse()) await end();
  ends = [];
});

/** Plans and applies a run by workers over the queue. */
async function work(world: World): Promise<number> {
  await world.sql`DROP SCHEMA IF EXISTS slotsync_queue CASCADE`;
  await migrateQueue({ postgresUrl: world.url });
  const bullmq = openBullmq({ postgresUrl: world.url }, 'traced', world.log);
  const producer = createProducer({ bullmq: async () => bullmq, state: world.state });
  const asked = { probe: async () => undefined };
  const workers = createWorkers({ ...world.deps(), bullmq: async () => bullmq, producer, ...asked });
  try {
    await workers.start();
    const runId = await world.startRun();
    await producer.enqueueRun(runId, 'sync');
    await until(async () => (await readRun(world.state.db, runId))?.finishedAt, {
      describe: 'the run to end',
    });
    return runId;
  } finally {
    await workers.stop();
    await producer.close();
    await bullmq.close();
  }
}

describe('the trace of a run', () => {
  it('has batches within the planning and requests within batches, without personal data', async () => {
    const world = await openRooms(roomsAndCourses());
    await addRooms(world, 'Anna', 'Bengt');
    await world.sql`INSERT INTO courses VALUES ('Cecilia', 'Course of Cecilia', 'Anna')`;
    // The second write is refused for the quota once, and one object for good.
    world.sandbox.failNext({ method: 'PUT', fault: 'status', status: 429, headers: { 'retry-after': '0' } });
    world.sandbox.refuseObject('room_Bengt', { status: 422, message: 'Bengt is no room' });
    const { spans, end } = keepSpans();
    ends.push(end);
    const runId = await work(world);

    const [run] = spans('run');
    expect(run?.attributes).toMatchObject({
      'slotsync.run.id': runId,
      'slotsync.run.kind': 'sync',
      'slotsync.run.started_by': 'command',
      'slotsync.run.batches': 2,
      'slotsync.lane': 'sync',
    });
    const batches = spans('batch').toSorted(
      (a, b) => a.startTime[0] - b.startTime[0] || a.startTime[1] - b.startTime[1],
    );
    expect(batches.map(({ attributes }) => attributes)).toMatchObject([
      {
        'slotsync.run.id': runId,
        'slotsync.stream': 'rooms',
        'slotsync.records.synced': 1,
        'slotsync.records.dead': 1,
      },
      { 'slotsync.run.id': runId, 'slotsync.stream': 'courses', 'slotsync.records.synced': 1 },
    ]);
    // Planned at once, but sent after the rooms, by a job that another job has added.
    for (const batch of batches) expect([traceOf(batch), parentOf(batch)]).toEqual([traceOf(run), idOf(run)]);

    const writes = spans('PUT objects');
    expect(writes.map((write) => parentOf(write))).toEqual(expect.arrayContaining(batches.map(idOf)));
    expect(writes[0]?.attributes).toEqual({
      'http.request.method': 'PUT',
      'http.response.status_code': 207,
      'http.request.resend_count': 1,
      'slotsync.endpoint': 'objects',
      'slotsync.lane': 'sync',
      'slotsync.objects': 2,
      'slotsync.quota.wait_seconds': expect.any(Number),
    });
    expect(writes[0]?.links).toEqual([]);
    expect(spans('POST findObjects').length).toBeGreaterThan(0);
    expect(isWithin(spans(), 'POST findObjects', ['run', 'batch'])).toBe(true);

    expect(new Set(spans().map(({ name }) => name.split(' ')[0]))).toEqual(
      new Set(['run', 'batch', 'PUT', 'POST']),
    );
    const told = JSON.stringify(
      spans().map(({ name, attributes, status, events }) => ({ name, attributes, status, events })),
    );
    for (const secret of ['Anna', 'Bengt', 'Cecilia', 'room_', 'no room', 'sandbox-key', 'Bearer', 'demo'])
      expect(told).not.toContain(secret);
  });
});

/** Returns whether each span of this name has one of these as its parent. */
function isWithin(
  all: ReturnType<ReturnType<typeof keepSpans>['spans']>,
  name: string,
  outer: string[],
): boolean {
  const names = new Map(all.map((span) => [idOf(span), span.name]));
  return all
    .filter((span) => span.name === name)
    .every((span) => outer.includes(names.get(parentOf(span)) ?? ''));
}

/** Starts a collector that keeps what it gets, or never answers. */
async function startCollector({ answers = true } = {}) {
  const received: { path: string | undefined; body: string }[] = [];
  const server: Server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (text: string) => (body += text));
    request.on('end', () => {
      received.push({ path: request.url, body });
      if (answers) response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  ends.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return { received, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

interface SentSpan {
  name: string;
  spanId: string;
  parentSpanId?: string;
}

describe('a collector of traces', () => {
  it('gets the trace of a sync by its environment variable, and nothing stays registered', async () => {
    const collector = await startCollector();
    const world = await rehearse({ rows: 3, sandbox: { rate: 0 } });
    ends.push(() => world.close());
    const { code, stdout } = await world.run(['sync', '--json'], {
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment=test',
    });
    expect(code).toBe(0);
    const { run } = JSON.parse(stdout) as { run: { id: number } };
    expect(isRegistered()).toBe(false);

    expect(collector.received.map(({ path }) => path)).toContain('/v1/traces');
    const sent = collector.received.map(({ body }) => body).join('\n');
    expect(sent).toContain('{"key":"service.name","value":{"stringValue":"slotsync"}}');
    expect(sent).toContain('deployment.environment');
    expect(sent).toContain(`{"key":"slotsync.run.id","value":{"intValue":${run.id}}}`);
    for (const secret of ['Sal 1', 'room_R1', 'sandbox-key']) expect(sent).not.toContain(secret);
    const spans = collector.received.flatMap(({ body }) =>
      (
        JSON.parse(body) as { resourceSpans: { scopeSpans: { spans: SentSpan[] }[] }[] }
      ).resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap((scope) => scope.spans)),
    );
    const planned = spans.find(({ name }) => name === 'run');
    const batches = spans
      .filter(({ name }) => name === 'batch')
      .map(({ spanId, parentSpanId }) => {
        expect(parentSpanId).toBe(planned?.spanId);
        return spanId;
      });
    expect(batches).toHaveLength(2);
    const writes = spans.filter(({ name }) => name === 'PUT objects');
    for (const { parentSpanId } of writes) expect(batches).toContain(parentSpanId);
  });

  it('is reported once if it never answers, and does not keep the process from ending', async () => {
    const { url, received } = await startCollector({ answers: false });
    const lines: string[] = [];
    const log = pino({}, { write: (line: string) => void lines.push(line) });
    process.env['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT'] = `${url}/custom`;
    ends.push(() => delete process.env['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT']);
    const tracing = startTracing(log);
    // More than one export.
    for (let at = 0; at < 600; at++) await inSpan('batch', {}, async () => undefined);
    await tracing?.close();
    expect(received.map(({ path }) => path)).toEqual(['/custom', '/custom']);
    expect(lines.map((line) => JSON.parse(line) as object)).toEqual([
      expect.objectContaining({
        msg: 'traces cannot be sent; check OTEL_EXPORTER_OTLP_ENDPOINT',
        reason: expect.stringMatching(/time/i),
      }),
    ]);
    expect(isRegistered()).toBe(false);
  });

  it.each(Object.entries(DRIPS))(
    'is reported if its %s drips, and delays no end of the process, despite garbage collection',
    async (_, answer) => {
      const collector = await openDripping(answer);
      ends.push(collector.close);
      const lines: string[] = [];
      process.env['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT'] = collector.url;
      ends.push(() => delete process.env['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT']);
      const tracing = startTracing(pino({}, { write: (line: string) => void lines.push(line) }));
      await inSpan('batch', {}, async () => undefined);
      const closing = tracing?.close() ?? Promise.reject(new Error('nothing is traced'));
      expect(await settleAmidCollections(closing)).toMatchObject({ status: 'fulfilled' });
      expect(lines.join()).toContain('the collector cannot be reached (ETIMEDOUT)');
    },
  );

  it('is that of an SDK registered before the program, and no second SDK is registered', async () => {
    const { spans, end } = keepSpans();
    ends.push(end);
    expect(startTracing(pino({ level: 'silent' }))).toBeUndefined();
    await inSpan('run', {}, async () => undefined);
    expect(spans('run')).toHaveLength(1);
  });
});
