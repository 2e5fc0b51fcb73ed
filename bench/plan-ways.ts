// The ways to find out what differs, side by side; run as a process of its own for each.
import { createHash } from 'node:crypto';
import { drizzle } from 'drizzle-orm/postgres-js';
import { bigint, integer, pgTable, text, timestamp } from 'drizzle-orm/pg-core';
import { eq } from 'drizzle-orm';
import { pino } from 'pino';
import postgres from 'postgres';
import { checkConfiguration } from '../src/config-file.js';
import { createMirror } from '../src/mirror/mirror.js';
import { copyHashes } from '../src/mirror/source-sql.js';
import { openState } from '../src/state/database.js';
import { failRun } from '../src/state/runs/end-run.js';
import { startRun } from '../src/state/runs/start-run.js';
import { records } from '../src/state/schema.js';
import type { Stream } from '../src/streams/stream.js';
import { planRun } from '../src/sync/plan/plan-run.js';

export const PLAN_WAYS = [
  'floor: COPY of both readings, thrown away',
  'slotsync: a run planned, its batches written',
  'rows by an ORM, hashed in JavaScript, looked up in a Map',
] as const;

export interface PlanOrder {
  way: (typeof PLAN_WAYS)[number];
  url: string;
  /** Counted ones; one more goes before. */
  runs: number;
}

export interface PlanReport {
  seconds: number[];
  peakBytes: number;
}

export function thingsStream(): Stream {
  const fields = { 'thing.name': 'name', 'thing.size': 'size' };
  const things = { from: 'public.things', key: 'id', type: 'thing', externalId: 'thing_{id}', fields };
  const [stream] = checkConfiguration({ streams: { things } }).streams;
  if (!stream) throw new Error('no stream');
  return stream;
}

async function floor(url: string): Promise<void> {
  const sql = postgres(url, { max: 1 });
  const nowhere = (statement: string) => sql.unsafe(statement.replace(/TO STDOUT$/, "TO '/dev/null'"));
  await nowhere(copyHashes(thingsStream()));
  await nowhere(
    `COPY (SELECT local_key, source_hash FROM slotsync.records WHERE stream = 'things' ORDER BY local_key) TO STDOUT`,
  );
  await sql.end();
}

async function plan(url: string): Promise<void> {
  const stream = thingsStream();
  const mirror = createMirror({ url });
  const state = openState({ url });
  const deps = {
    mirror,
    state,
    streams: new Map([[stream.name, stream]]),
    log: pino({ level: 'silent' }),
    preflight: { requireKnownNames: async () => undefined }, // the service is not part of it
  };
  const { run } = await startRun(state.db, {
    kind: 'sync',
    lane: 'sync',
    startedBy: 'command',
    streams: [stream.name],
  });
  await planRun(deps, run.id);
  await failRun(state.db, run.id, { code: 'measured', message: '' });
  await mirror.close();
  await state.close();
}

const things = pgTable('things', {
  id: bigint('id', { mode: 'number' }).primaryKey(),
  name: text('name'),
  size: integer('size'),
  note: text('note'),
  updatedAt: timestamp('updated_at', { withTimezone: true, mode: 'string' }),
});

async function naive(url: string): Promise<number> {
  const client = postgres(url, { max: 1 });
  const db = drizzle(client);
  const known = new Map<string, string>();
  for (const { localKey, hash } of await db
    .select({ localKey: records.localKey, hash: records.objectHash })
    .from(records)
    .where(eq(records.stream, 'things'))) {
    known.set(localKey, hash ?? '');
  }
  let changed = 0;
  for (const row of await db.select().from(things)) {
    const hash = createHash('sha256').update(JSON.stringify(row)).digest('hex');
    if (known.get(String(row.id)) !== hash) changed++;
  }
  await client.end();
  return changed;
}

const WAYS: Record<PlanOrder['way'], (url: string) => Promise<unknown>> = {
  [PLAN_WAYS[0]]: floor,
  [PLAN_WAYS[1]]: plan,
  [PLAN_WAYS[2]]: naive,
};

process.on('message', ({ way, url, runs }: PlanOrder) => {
  void measure(WAYS[way], url, runs).then((report) => process.send?.(report, () => process.exit(0)));
});

async function measure(
  run: (url: string) => Promise<unknown>,
  url: string,
  runs: number,
): Promise<PlanReport> {
  let peakBytes = 0;
  const watch = setInterval(() => (peakBytes = Math.max(peakBytes, process.memoryUsage.rss())), 10);
  await run(url);
  const seconds: number[] = [];
  for (let at = 0; at < runs; at++) {
    const startedAt = performance.now();
    await run(url);
    seconds.push((performance.now() - startedAt) / 1000);
  }
  clearInterval(watch);
  return { seconds, peakBytes };
}
