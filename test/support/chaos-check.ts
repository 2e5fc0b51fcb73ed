// The invariants when all is quiet, and the evidence when one is broken.
import { setTimeout as pause } from 'node:timers/promises';
import { textOf } from './chaos-mirror.js';
import type { ChaosWorld } from './chaos-world.js';
import { ownershipFaults } from './ownership.js';
import { until } from './wait.js';

const QUOTA = 20;
const NAMED = 8;
/** Runs with something to send that may be needed: one to finish what was begun, one for what that left. */
const MOST_SYNCS = 3;
/** Longer than any check of an object is put off, and than workers take for what they have. */
const QUIET_WITHIN_MS = 240_000;
const LOOK_EVERY_MS = 200;

export interface Settled {
  /** Commands until nothing was left to do. */
  syncs: number;
  seconds: number;
  faults: string[];
}

/**
 * Runs `sync` as an operator would, until a run succeeds that found nothing to do and no object is still to be looked
 * at. Nobody approves, retries or repairs anything in between.
 */
export async function settle(world: ChaosWorld): Promise<Settled> {
  const since = performance.now();
  const faults: string[] = [];
  let sending = 0;
  for (let syncs = 1; ; syncs++) {
    await waitUntilQuiet(world);
    const { code, stdout, stderr } = await world.run(['sync', '--json']);
    const seconds = Math.round((performance.now() - since) / 1000);
    const run = readRun(stdout);
    const checks = await countChecks(world);
    world.note(
      `sync ${syncs} ended with ${code}: ${JSON.stringify(run?.plan)} ${JSON.stringify(run?.counts)}, ${checks} checks pending`,
    );
    const succeeded = code === 0 && run?.status === 'succeeded';
    if (succeeded && isIdle(run) && checks === 0) return { syncs, seconds, faults };
    if (code === null) faults.push(`sync ${syncs} did not end: ${stderr.slice(-500)}`);
    // A run that only looked at objects has nothing to send again.
    if (!(succeeded && (isIdle(run) || onlyLooked(run)))) sending++;
    if (code !== null && sending < MOST_SYNCS && performance.now() - since < 2 * QUIET_WITHIN_MS) continue;
    faults.push(`after ${syncs} syncs there is still something to do: ${code} ${JSON.stringify(run)}`);
    return { syncs, seconds, faults };
  }
}

/** The workers have done what was asked of them, and every check is due: while none lives, only checks are waited for. */
async function waitUntilQuiet({ sql, workers, note }: ChaosWorld): Promise<void> {
  const deadline = performance.now() + QUIET_WITHIN_MS;
  while (performance.now() < deadline) {
    const [open] = await sql<{ work: number; checks: number; later: number }[]>`
      SELECT (SELECT count(*) FROM slotsync.runs WHERE finished_at IS NULL)::int
          + (SELECT count(*) FROM slotsync.changes WHERE run_id IS NOT NULL OR not_before IS NULL)::int AS work,
        count(*)::int AS checks, count(*) FILTER (WHERE check_after > now())::int AS later
      FROM slotsync.records WHERE check_after IS NOT NULL`;
    const isAlone = workers.living().length === 0;
    if (open && (isAlone ? open.later === 0 : open.work + open.checks === 0)) return;
    await pause(LOOK_EVERY_MS);
  }
  note('the workers did not come to rest');
}

async function countChecks({ sql }: ChaosWorld): Promise<number> {
  const [row] = await sql<{ checks: number }[]>`
    SELECT count(*)::int AS checks FROM slotsync.records WHERE check_after IS NOT NULL`;
  return row?.checks ?? 0;
}

interface ReportedRun {
  status: string;
  plan: Record<string, { create: number; update: number; retire: number; retry: number }>;
  counts: Record<string, Record<string, number>>;
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

/** Records were in doubt, and what stands at the service was what had been accepted. */
function onlyLooked({ plan, counts }: ReportedRun): boolean {
  const isNothingToSend = Object.values(plan).every(
    ({ create, update, retire }) => create + update + retire === 0,
  );
  return isNothingToSend && Object.values(counts).every(({ synced = 0 }) => synced === 0);
}

/** Everything that is not as it must be, in words; empty when all is well. */
export async function findFaults(world: ChaosWorld): Promise<string[]> {
  await until(() => world.service.late() === 0, { describe: 'every late write to be carried out' });
  return [
    ...(await compareObjects(world)),
    ...(await checkRecords(world)),
    ...(await checkRuns(world)),
    ...checkQuota(world),
  ];
}

/** The mirror is asked which row an object belongs to, never the state. */
async function compareObjects({ sql, service, mirror }: ChaosWorld): Promise<string[]> {
  const expected = await mirror.readExpected(sql);
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

async function checkRecords({ sql, service, mirror }: ChaosWorld): Promise<string[]> {
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
      check_after: Date | null;
      claimed_by: string | null;
    }[]
  >`SELECT * FROM slotsync.records ORDER BY stream, local_key`;
  const keyOf = (record: (typeof records)[number]) => `${record.stream} ${record.local_key}`;
  const nameOf = (record: (typeof records)[number]) =>
    `${keyOf(record)} ${record.external_id} ${record.status} ${record.error_code ?? ''} claimed by ${record.claimed_by ?? 'nobody'}`;

  const unsettled = records.filter(({ status }) => status !== 'synced' && status !== 'retired');
  const open = records.filter(
    ({ in_doubt: inDoubt, check_after: checkAfter, claimed_by: claim }) =>
      inDoubt || checkAfter !== null || claim !== null,
  );
  const synced = new Set(records.filter(({ status }) => status === 'synced').map(keyOf));
  const owned = new Set(
    records.filter(({ status }) => status === 'synced').map(({ external_id: extId }) => extId),
  );
  const lies = records.filter(({ status, external_id: extId, destination_id: id }) => {
    const object = there.get(extId ?? '');
    const isActive = status === 'synced' || owned.has(extId);
    return object?.active !== isActive || (id !== null && object.id !== Number(id));
  });
  const expected = await mirror.readExpected(sql);
  const rows = new Set([...expected.values()].map(({ row }) => row));
  const given = [...expected].map(([externalId, { row }]) => {
    const [stream = '', ...key] = row.split(' ');
    return { stream, localKey: key.join(' '), externalId };
  });
  const rowless = records.filter((record) => record.status === 'synced' && !rows.has(keyOf(record)));
  const recordless = [...rows].filter((row) => !synced.has(row));
  const known = new Set(records.map(({ external_id: extId }) => extId));
  const unknown = [...there.keys()].filter((extId) => !known.has(extId));
  return [
    ...listed('records are neither synced nor retired', unsettled, nameOf),
    ...listed('records are claimed, in doubt, or still to be checked', open, nameOf),
    ...listed('records say of an object what is not so', lies, nameOf),
    ...listed('records are synced and have no row', rowless, nameOf),
    ...listed('rows have no synced record', recordless, (row) => row),
    ...listed(
      'objects have another owner than their row',
      await ownershipFaults(sql, given),
      (fault) => fault,
    ),
    ...listed('objects have no record', unknown, (extId) => extId),
  ];
}

async function checkRuns({ sql }: ChaosWorld): Promise<string[]> {
  const runs = await sql`SELECT id, status FROM slotsync.runs WHERE finished_at IS NULL`;
  const batches = await sql`
    SELECT id, run_id, state, error_code FROM slotsync.batches WHERE state IN ('planned', 'queued')`;
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
      'records that are not simply synced',
      sql`SELECT stream, local_key, external_id, status, error_code, in_doubt, check_after, run_id FROM slotsync.records
        WHERE status <> 'synced' OR in_doubt OR check_after IS NOT NULL ORDER BY external_id, stream, local_key LIMIT 60`,
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
