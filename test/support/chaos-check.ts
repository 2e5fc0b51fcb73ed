// What must hold when all is quiet, and the evidence when it does not.
import { readExpected, textOf } from './chaos-mirror.js';
import type { ChaosWorld } from './chaos-world.js';

const QUOTA = 20;
const NAMED = 8;
/** Runs that may be needed until one finds nothing to do: one to finish what was begun, one for what that left. */
const MOST_SYNCS = 3;

export interface Settled {
  /** Commands until nothing was left to do. */
  syncs: number;
  seconds: number;
  faults: string[];
}

/**
 * Runs `sync` as an operator would, until a run succeeds that found nothing to do. Nobody approves, retries or
 * repairs anything in between.
 */
export async function settle(world: ChaosWorld): Promise<Settled> {
  const since = performance.now();
  const faults: string[] = [];
  for (let syncs = 1; ; syncs++) {
    const { code, stdout, stderr } = await world.run(['sync', '--json']);
    const seconds = Math.round((performance.now() - since) / 1000);
    const run = readRun(stdout);
    world.note(
      `sync ${syncs} ended with ${code}: ${JSON.stringify(run?.plan)} ${JSON.stringify(run?.counts)}`,
    );
    if (code === 0 && run?.status === 'succeeded' && isIdle(run)) return { syncs, seconds, faults };
    if (code === null) faults.push(`sync ${syncs} did not end: ${stderr.slice(-500)}`);
    if (code !== null && syncs < MOST_SYNCS) continue;
    faults.push(`after ${syncs} syncs there is still something to do: ${code} ${JSON.stringify(run)}`);
    return { syncs, seconds, faults };
  }
}

interface ReportedRun {
  status: string;
  plan: Record<string, { create: number; update: number; retire: number; retry: number }>;
  counts: Record<string, unknown>;
}

function readRun(stdout: string): ReportedRun | undefined {
  try {
    return (JSON.parse(stdout) as { run?: ReportedRun }).run;
  } catch {
    return undefined;
  }
}

function isIdle({ plan }: ReportedRun): boolean {
  return Object.values(plan).every(
    ({ create, update, retire, retry }) => create + update + retire + retry === 0,
  );
}

/** Everything that is not as it must be, in words; empty when all is well. */
export async function findFaults(
  world: ChaosWorld,
  notes: ReadonlyMap<string, string> = new Map(),
): Promise<string[]> {
  return [
    ...(await compareObjects(world, notes)),
    ...(await checkRecords(world)),
    ...(await checkRuns(world)),
    ...checkQuota(world),
  ];
}

async function compareObjects(
  { sql, service }: ChaosWorld,
  notes: ReadonlyMap<string, string>,
): Promise<string[]> {
  const expected = await readExpected(sql, notes);
  const there = new Map(service.objects().map((object) => [object.extId, object]));
  const wrong = [...expected].filter(([extId, object]) => textOf(there.get(extId)) !== textOf(object));
  const left = [...there.values()].filter(({ extId, active }) => active && !expected.has(extId));
  return [
    ...listed('objects differ from their rows', wrong, ([extId, object]) => {
      return `${extId} is ${textOf(there.get(extId))}, must be ${textOf(object)}`;
    }),
    ...listed('objects are active and have no row', left, ({ extId }) => extId),
  ];
}

async function checkRecords({ sql, service }: ChaosWorld): Promise<string[]> {
  const there = new Map(service.objects().map((object) => [object.extId, object]));
  const records = await sql<
    {
      stream: string;
      local_key: string;
      external_id: string | null;
      destination_id: string | null;
      status: string;
      error_code: string | null;
      in_doubt: boolean;
      claimed_by: string | null;
    }[]
  >`SELECT * FROM slotsync.records ORDER BY stream, local_key`;
  const nameOf = (record: (typeof records)[number]) =>
    `${record.stream} ${record.local_key} ${record.status} ${record.error_code ?? ''} claimed by ${record.claimed_by ?? 'nobody'}`;

  const unsettled = records.filter(({ status }) => status !== 'synced' && status !== 'retired');
  const open = records.filter(({ in_doubt: inDoubt, claimed_by: claim }) => inDoubt || claim !== null);
  const lies = records.filter(({ status, external_id: extId, destination_id: id }) => {
    const object = there.get(extId ?? '');
    return object?.active !== (status === 'synced') || (id !== null && object.id !== Number(id));
  });
  const known = new Set(records.map(({ external_id: extId }) => extId));
  const unknown = [...there.keys()].filter((extId) => !known.has(extId));
  return [
    ...listed('records are neither synced nor retired', unsettled, nameOf),
    ...listed('records are claimed or in doubt', open, nameOf),
    ...listed('records say of an object what is not so', lies, nameOf),
    ...listed('records share an external id', known.size < records.length ? records : [], nameOf),
    ...listed('objects have no record', unknown, (extId) => extId),
  ];
}

async function checkRuns({ sql }: ChaosWorld): Promise<string[]> {
  const runs = await sql`SELECT id, status FROM slotsync.runs WHERE finished_at IS NULL`;
  const batches = await sql`
    SELECT id, run_id, state, error_code FROM slotsync.batches WHERE state IN ('planned', 'queued', 'held')`;
  return [
    ...listed('runs are not finished', [...runs], (run) => JSON.stringify(run)),
    ...listed('batches are not finished', [...batches], (batch) => JSON.stringify(batch)),
  ];
}

function checkQuota({ service }: ChaosWorld): string[] {
  const most = service.mostOfOursInAnySecond();
  return most > QUOTA ? [`${most} of our requests arrived in one second`] : [];
}

function listed<T>(what: string, found: readonly T[], describe: (one: T) => string): string[] {
  if (found.length === 0) return [];
  const named = found.slice(0, NAMED).map((one) => `\n    ${describe(one)}`);
  return [`${found.length} ${what}:${named.join('')}`];
}

/** For whoever has to find out why: the state, the sessions of the database, and what the workers said last. */
export async function describeWorld({ sql, workers }: ChaosWorld): Promise<string> {
  const rows = async (title: string, query: Promise<readonly object[]>) => {
    const found = await query.catch((error: unknown) => [{ error: String(error) }]);
    return `${title}\n${found.map((row) => `    ${JSON.stringify(row)}`).join('\n')}`;
  };
  const parts = [
    await rows(
      'runs',
      sql`SELECT id, status, streams, error_code, requested_at, started_at, finished_at FROM slotsync.runs ORDER BY id`,
    ),
    await rows(
      'unfinished or failed batches',
      sql`SELECT id, run_id, stream, level, state, operation, cardinality(keys) AS keys, error_code FROM slotsync.batches
        WHERE state NOT IN ('done', 'cancelled') ORDER BY id LIMIT 40`,
    ),
    await rows(
      'claims',
      sql`SELECT claimed_by, min(claimed_until) AS until, count(*)::int AS records, min(owner) AS owner
        FROM slotsync.records LEFT JOIN chaos.claims ON token = claimed_by WHERE claimed_by IS NOT NULL GROUP BY 1`,
    ),
    await rows(
      'sessions',
      sql`SELECT usename, application_name, state, wait_event_type, wait_event, now() - xact_start AS in_transaction, left(query, 200) AS query
        FROM pg_stat_activity WHERE datname = current_database() AND (state <> 'idle' OR wait_event_type = 'Lock')`,
    ),
    ...workers.all().map(({ name, state, running }) => {
      const lines = running.output().trim().split('\n').slice(-12);
      return `${name} (${state}) said last\n${lines.map((line) => `    ${line}`).join('\n')}`;
    }),
  ];
  return parts.join('\n');
}
