// Content of a trace: parents, failures, and ids in log lines. Traces are exported only to a named collector.
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { SlotsyncError } from '../../src/errors/errors.js';
import { createLogger } from '../../src/process/logger.js';
import { loadSettings } from '../../src/config/settings.js';
import { createObject } from '../../src/streams/destination-object.js';
import type { Stream } from '../../src/streams/stream.js';
import { createRequestFiller } from '../../src/sync/apply/fill-requests.js';
import { NO_FAILURES } from '../../src/sync/apply/narrow-failures.js';
import { FIRST_SIZE } from '../../src/sync/apply/request-size.js';
import { inSpan, isRegistered, linkTo, traceIds, traceparent } from '../../src/process/tracing.js';
import { createFolder } from '../support/folders.js';
import { createLater } from '../support/later.js';
import { playPuts } from '../support/play-put.js';
import { idOf, keepSpans, parentOf, traceOf } from '../support/tracing.js';

const file = path.join(createFolder('tracing'), 'log');
let kept: ReturnType<typeof keepSpans> | undefined;
const record = () => (kept = keepSpans());
afterEach(() => {
  kept?.end();
  kept = undefined;
});

describe('a span', () => {
  it('is a child of the span around it, and has the code of its failure without the message', async () => {
    const { spans } = record();
    const failing = inSpan('run', { 'slotsync.run.id': 7 }, () =>
      inSpan('batch', {}, async () => {
        throw new SlotsyncError('refused', 'Anna Svensson is not a room', {});
      }),
    );
    await expect(failing).rejects.toThrow();
    const [batch, run] = spans();
    expect(parentOf(batch)).toBe(idOf(run));
    expect(run?.attributes).toMatchObject({ 'slotsync.run.id': 7 });
    expect(batch?.attributes).toEqual({ 'error.type': 'refused' });
    expect(batch?.status).toEqual({ code: 2 });
    expect(batch?.events).toEqual([]);
  });

  it('belongs to the trace that its job carries', async () => {
    const { spans } = record();
    const carried = await inSpan('run', {}, async () => traceparent());
    expect(carried).toMatch(/^00-[\da-f]{32}-[\da-f]{16}-01$/);
    await inSpan('batch', {}, async () => undefined, { parent: carried });
    const [run, batch] = spans();
    expect(traceOf(batch)).toBe(traceOf(run));
    expect(parentOf(batch)).toBe(idOf(run));
    await inSpan('other', {}, async () => undefined, { parent: 'no traceparent' });
    expect(parentOf(spans('other')[0])).toBeUndefined();
  });

  it('is not recorded without an SDK', async () => {
    expect(isRegistered()).toBe(false);
    expect(await inSpan('run', {}, async () => [traceparent(), traceIds()])).toEqual([undefined, {}]);
  });
});

it('a request that several batches share is a child of the first batch and linked with each', async () => {
  const { spans } = record();
  const stream = { type: 'room', batchSize: 'auto' } as Stream;
  const { promise: granted, resolve: grant } = createLater();
  const filler = createRequestFiller({
    clock: () => 0,
    sizes: {
      of: () => ({ ...FIRST_SIZE, objects: 3 }),
      learn: () => undefined,
    },
    destination: playPuts(
      (list, { sharedBy = [] }) =>
        inSpan('PUT objects', { 'slotsync.objects': list.length }, async () => {
          linkTo(sharedBy);
          return new Map(list.map(({ extId }) => [extId, { accepted: true as const, id: '1' }]));
        }),
      () => granted,
    ),
  });
  const batch = (name: string) =>
    inSpan(name, {}, () =>
      filler.put(
        stream,
        { lane: 'sync' },
        {
          objects: [1, 2].map((at) => createObject(`${name} ${at}`, 'room', true, [])),
          suspects: new Set(),
          attempt: { earlier: NO_FAILURES, isAnswered: false },
          goodUntil: Infinity,
          isAgain: false,
          claim: { confirm: async () => undefined },
        },
      ),
    );
  const batches = [batch('a'), batch('b')];
  await new Promise(setImmediate);
  grant();
  await Promise.all(batches);
  const [a, b] = [spans('a')[0], spans('b')[0]];
  const [shared, rest] = spans('PUT objects').toSorted(
    (one, other) => Number(other.attributes['slotsync.objects']) - Number(one.attributes['slotsync.objects']),
  );
  expect(shared?.attributes).toEqual({ 'slotsync.objects': 3 });
  expect(parentOf(shared)).toBe(idOf(a));
  expect(shared?.links.map(({ context }) => context.spanId)).toEqual([idOf(a), idOf(b)]);
  // A request of one batch alone has no links.
  expect(rest?.attributes).toEqual({ 'slotsync.objects': 1 });
  expect(parentOf(rest)).toBe(idOf(b));
  expect(rest?.links).toEqual([]);
});

it('a log line has the ids of the span around it, and no ids outside a span', async () => {
  const log = createLogger('info', undefined, file, traceIds);
  const { spans } = record();
  await inSpan('batch', {}, async () => log.child({ batch: 7 }).info('batch applied'));
  log.info('worker stopped');
  const lines = readFileSync(file, 'utf8').trim().split('\n');
  const [inside, outside] = lines.map((line) => JSON.parse(line) as object);
  const [span] = spans();
  expect(inside).toMatchObject({ batch: 7, trace_id: traceOf(span), span_id: idOf(span) });
  expect(outside).not.toHaveProperty('trace_id');
});

describe('the export of traces', () => {
  const exportsTraces = (env: Record<string, string>) => loadSettings([], env).exportsTraces;
  const named = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' };

  it('is on when a collector is named for all signals or for traces', () => {
    expect(exportsTraces(named)).toBe(true);
    expect(exportsTraces({ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'https://collector/v1/traces' })).toBe(true);
    expect(exportsTraces({ ...named, OTEL_TRACES_EXPORTER: 'otlp,console' })).toBe(true);
  });

  it.each([
    {},
    { OTEL_SERVICE_NAME: 'slotsync' },
    { ...named, OTEL_SDK_DISABLED: 'True' },
    { ...named, OTEL_TRACES_EXPORTER: 'none' },
  ])('is off with %j', (env) => expect(exportsTraces(env)).toBe(false));

  it('is refused when the address of the collector is no web address', () => {
    expect(() => exportsTraces({ OTEL_EXPORTER_OTLP_ENDPOINT: 'collector:4317' })).toThrow(
      expect.objectContaining({
        faults: ['OTEL_EXPORTER_OTLP_ENDPOINT: not a web address; write http://host:4318'],
      }),
    );
  });
});
