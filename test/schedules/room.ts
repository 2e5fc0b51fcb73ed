// The world of one schedule: rows in the mirror, streams and keys that no other schedule has, processes that work them, and
// events that may happen to the processes.
import { randomUUID } from 'node:crypto';
import { checkConfiguration } from '../../src/config/config-file.js';
import { codeOf, messageOf } from '../../src/errors/errors.js';
import { decideRetry } from '../../src/queue/executor.js';
import { rejectGates, type GateChoice } from '../../src/state/gates/answers.js';
import { listFrozen } from '../../src/state/freezes.js';
import { addDueChecks, takeChanges, type TakenRun } from '../../src/state/inbox/take-changes.js';
import { linkRecords } from '../../src/state/records/links.js';
import { retryRecords } from '../../src/state/records/retry-records.js';
import { advanceRun } from '../../src/state/runs/advance-run.js';
import { listQueuedBatches, readBatch } from '../../src/state/runs/batches.js';
import { failRun } from '../../src/state/runs/end-run.js';
import { failBatch } from '../../src/state/runs/finish-batch.js';
import { startRun, type RunRequest } from '../../src/state/runs/start-run.js';
import type { LimitedOperation } from '../../src/state/schema.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { applyBatch } from '../../src/sync/apply/apply-batch.js';
import { approve } from '../../src/sync/operator/approve.js';
import { KEYS_OF_A_CHANGE } from '../../src/sync/plan/planned-batches.js';
import { createNameCheck } from '../../src/sync/plan/unknown-names.js';
import { planRun } from '../../src/sync/plan/plan-run.js';
import { renameKey } from '../../src/sync/operator/rename-key.js';
import type { SyncDeps } from '../../src/sync/run/sync-deps.js';
import type { Actor } from './actor.js';
import { destinationOf, mirrorOf, stateOf } from './clients.js';
import { REQUEST_SECONDS, type ExploredWorld } from './explored-world.js';
import { OPERATOR } from '../support/operator.js';

/** A row of the mirror. */
export interface ThingRow {
  id: string;
  code: string;
  name: string;
  note?: string;
  parent?: string;
}

export type Table = 'one' | 'two';

/** Keys of one batch. */
export interface QueuedKeys {
  table: Table;
  keys: readonly string[];
  operation?: 'retire';
}

/** A stream over one of the two tables. */
export interface StreamShape {
  table: Table;
  /** Column of the external ids. `id` is the key, `code` is another text. */
  identifiedBy: 'id' | 'code';
  prefix: string;
  /** Table that the rows refer to. */
  parent?: Table;
  unlessReserved?: boolean;
  /** Set if the objects stay active when their rows go. */
  retire?: 'keep';
  /** Set if objects are written without being read. */
  owns?: 'object';
  /** Numbers of records of each operation that may be sent in a day without an approval. */
  limits?: Partial<Record<LimitedOperation | 'refused', number>>;
  /** Set if an object of the same name is searched before a record is created. */
  match?: true;
  /** Set if the objects have the column `note`, which people edit at the service: `write: 'changed'`. */
  hasNotes?: true;
}

/** Attempts that a batch has, as the queue counts them. */
const ATTEMPTS = 9;
/** Slightly longer than a claim is valid. */
export const CLAIM_PASSES_SECONDS = REQUEST_SECONDS + 31;
const DAY_SECONDS = 24 * 60 * 60;
const ROUNDS_MOST = 30;
/** Above the level of every stream. */
const RETIRE_LEVEL = 5;

/** Called by a process before it reads the mirror, and before it begins a batch. */
export interface Hooks {
  onRead?: () => void;
  onBatch?: (id: number) => Promise<void>;
}

export type Room = ReturnType<typeof createRoom>;
export type Process = ReturnType<Room['process']>;

/** `name`: no other schedule over this database has it. */
export function createRoom(world: ExploredWorld, name: string, shapes: readonly StreamShape[]) {
  const { sql, service } = world;
  const nameOf = (table: Table) => `${name}_${table}`;
  const declared = shapes.map((shape): [string, SlotsyncConfig['streams'][string]] => [
    nameOf(shape.table),
    {
      from: { query: `SELECT id, code, name, note, parent FROM ${shape.table} WHERE world = '${name}'` },
      key: 'id',
      type: 'thing',
      externalId: `${shape.prefix}${name}_{${shape.identifiedBy}}`,
      fields: {
        'thing.name': 'name',
        ...(shape.hasNotes ? { 'thing.note': { from: 'note', write: 'changed' as const } } : {}),
      },
      ...(shape.parent
        ? { references: { 'thing.parent': { stream: nameOf(shape.parent), key: 'parent' } } }
        : {}),
      retire: shape.retire ?? 'deactivate',
      owns: shape.owns ?? 'fields',
      unlessReserved: shape.unlessReserved ?? false,
      ...(shape.match ? { match: ['thing.name'] } : {}),
      limits: Object.fromEntries(
        Object.entries(shape.limits ?? {}).map(([operation, count]) => [operation, { count, percent: 0 }]),
      ),
    },
  ]);
  const configuration = checkConfiguration({ streams: Object.fromEntries(declared) });
  const streams = new Map(configuration.streams.map((stream) => [stream.name, stream]));
  const names = [...streams.keys()];
  const syncRequest = { kind: 'sync', lane: 'sync', startedBy: 'command', streams: names } as const;
  /** Steps so far, and how much later than it is the processes believe it to be. */
  const clock = { steps: 0, aheadMs: 0 };
  const deps: SyncDeps = { ...world.plain, mirror: world.mirror, streams, log: world.log };

  async function passTime(seconds = CLAIM_PASSES_SECONDS): Promise<void> {
    clock.aheadMs += seconds * 1000;
    clock.steps++;
    const back = sql`make_interval(secs => ${seconds})`;
    await sql`
      WITH records AS (
        UPDATE slotsync.records SET claimed_until = claimed_until - ${back}, check_after = check_after - ${back}
        WHERE stream = ANY (${names}) AND (claimed_until IS NOT NULL OR check_after IS NOT NULL)
      ), objects AS (UPDATE slotsync.object_claims SET claimed_until = claimed_until - ${back})
      UPDATE slotsync.changes SET not_before = not_before - ${back}
      WHERE stream = ANY (${names}) AND not_before IS NOT NULL`;
  }

  /**
   * A process of slotsync: the use cases, with its own clients. Without an actor no scheduler stands in front of them.
   * `isAlone`: no other works the same run.
   */
  function process(
    actor?: Actor,
    isAlone = true,
    { onRead = () => undefined, onBatch = async () => undefined }: Hooks = {},
  ) {
    const clients = actor ? world.clientsOf(actor.name) : world.plain;
    const own: SyncDeps = actor
      ? {
          ...deps,
          mirror: mirrorOf(actor, world.openMirror(), onRead),
          state: stateOf(actor, clients.state, isAlone),
          destination: destinationOf(actor, clients.destination),
        }
      : deps;
    const { state } = own;
    const timed = {
      ...own,
      now: () => Date.now() + clock.aheadMs,
      // Time passes only where a schedule says so, however long the machine takes.
      clock: () => clock.aheadMs,
      nameCheck: createNameCheck(own.destination),
    };
    /** Errors on the way that were retried. */
    const errors: string[] = [];

    async function wait(action: 'retry' | 'defer' | 'return', code: string): Promise<void> {
      errors.push(code);
      if (!actor) return;
      const since = clock.steps;
      // A retry comes seconds later; who waits for somebody else looks again when anything has happened.
      const when = () => action !== 'defer' || clock.steps > since;
      await actor.step({ label: `tries again after ${code}`, isPause: true, when }, () => undefined);
    }

    async function attempt(run: () => Promise<void>, fail: (error: unknown) => Promise<void>): Promise<void> {
      for (let attemptsMade = 0, rounds = 0; ;) {
        try {
          return await run();
        } catch (error) {
          const { action } = decideRetry({ error, attemptsMade, attempts: ATTEMPTS });
          if (action === 'fail' || rounds++ === ROUNDS_MOST) return fail(error);
          if (action === 'retry') attemptsMade++;
          await wait(action, codeOf(error));
        }
      }
    }

    const reasonOf = (error: unknown) => ({ code: codeOf(error), message: messageOf(error) });

    const advance = async (runId: number): Promise<number[]> =>
      (await advanceRun(state.db, runId)).map(({ id }) => id);

    const plan = (runId: number, taken?: TakenRun) => {
      let first = taken;
      return attempt(
        async () => {
          const own = first;
          first = undefined; // a job goes on, which reads what was taken
          await planRun(timed, runId, own && { token: own.planner ?? '', taken: own });
        },
        (error) => failRun(state.db, runId, reasonOf(error)),
      );
    };

    async function apply(batchId: number): Promise<void> {
      await attempt(
        async () => {
          await onBatch(batchId);
          const batch = await readBatch(state.db, batchId);
          if (batch?.state === 'queued') await applyBatch(timed, batch);
        },
        async (error) => {
          errors.push(`out of attempts: ${codeOf(error)} ${messageOf(error)}`);
          const batch = await readBatch(state.db, batchId);
          if (batch) await failBatch(state, batch, reasonOf(error));
        },
      );
    }

    /** Works a run from where it stands to its end. */
    async function work(runId: number, isPlanned = false): Promise<void> {
      if (!isPlanned) await plan(runId);
      const queue = [
        ...(await advance(runId)),
        ...(await listQueuedBatches(state.db, runId)).map(({ id }) => id),
      ];
      for (let id = queue.shift(); id !== undefined; id = queue.shift()) {
        await apply(id);
        queue.push(...(await advance(runId)));
      }
    }

    /** Starts a run, unless another one over its streams is under way, and works it. */
    async function run(request: Partial<RunRequest> = {}): Promise<void> {
      const { run: found, started } = await startRun(state.db, { ...syncRequest, ...request });
      if (started) await work(found.id);
    }

    /** An operator's action; undefined: it is refused. */
    async function unlessRefused<T>(action: Promise<T>): Promise<T | undefined> {
      try {
        return await action;
      } catch (error) {
        if (codeOf(error) !== 'usage') throw error;
        errors.push(messageOf(error));
        return undefined;
      }
    }

    return {
      state,
      errors,
      work,

      /** Runs the inbox loop until nothing waits. */
      async takeFromInbox(): Promise<void> {
        for (let rounds = 0; rounds < ROUNDS_MOST; rounds++) {
          await addDueChecks(state.db, names);
          const few = { keys: KEYS_OF_A_CHANGE, token: randomUUID() };
          const taken = await takeChanges(state.db, names, undefined, few);
          if (taken === 'nothing') return;
          if (taken === 'busy') await wait('defer', 'busy');
          else {
            await plan(taken.runId, taken);
            await work(taken.runId, true);
          }
        }
      },

      run,
      deps: timed,

      /** A sync over all streams, unless one is under way. */
      sync: () => run(),

      retry: (table: Table, ...keys: string[]) => retryRecords(state.db, { stream: nameOf(table), keys }),

      /** An operator links a key to an object, where nothing speaks against it. */
      link: (table: Table, localKey: string, externalId: string) =>
        linkRecords(state, [
          {
            stream: nameOf(table),
            localKey,
            externalId,
            destinationId: null,
            assignsId: false,
            linkedBy: 'match',
            fields: null,
          },
        ]),

      /** An operator approves what a run holds, if nobody has decided yet, and works the run that this starts. */
      async approve(runId: number, choice: GateChoice & { exactly?: boolean } = {}): Promise<void> {
        const approving = {
          ...own,
          configuration,
          requireQueue: async () => undefined,
          actor: OPERATOR,
        };
        const answer = await unlessRefused(approve(approving, { runId, ...choice }));
        if (answer?.started) await work(answer.run.id);
      },

      /** An operator rejects what a run holds, if nobody has decided yet. */
      reject: (runId: number, choice: GateChoice = {}) =>
        unlessRefused(rejectGates(state.db, runId, choice, OPERATOR)),

      /** An operator renames a key, if that is possible now. */
      async rename(table: Table, from: string, to: string): Promise<void> {
        const stream = streams.get(nameOf(table));
        if (!stream) return;
        await unlessRefused(renameKey(own, stream, { from, to }));
      },
    };
  }

  const plain = process();

  /** A sync as it is when it was planned: its batches over these keys are queued. */
  async function queueSync(...lists: readonly QueuedKeys[]): Promise<number> {
    const rows = lists.map(({ table, keys, operation = null }) => {
      const level = streams.get(nameOf(table))?.level ?? 0;
      return { stream: nameOf(table), level: operation === 'retire' ? RETIRE_LEVEL : level, operation, keys };
    });
    const [run] = await sql<{ id: number }[]>`
      WITH run AS (
        INSERT INTO slotsync.runs (kind, lane, started_by, streams, status, started_at)
        VALUES ('sync', 'sync', 'command', ${names}::text[], 'running', now()) RETURNING id
      ), batches AS (
        INSERT INTO slotsync.batches (run_id, stream, level, operation, keys, state)
        SELECT id, stream, level, operation, keys, CASE WHEN level = min(level) OVER () THEN 'queued' ELSE 'planned' END
        FROM run, jsonb_to_recordset(${JSON.stringify(rows)}::text::jsonb)
          AS b(stream text, level int, operation text, keys text[])
      ) SELECT id::int AS id FROM run`;
    return run?.id ?? 0;
  }

  const startSync = async () => (await startRun(plain.state.db, syncRequest)).run.id;

  /** Unfinished work: runs, keys in the inbox, and objects with a pending check. A frozen stream has none. */
  async function readOpen() {
    const frozen = (await listFrozen(plain.state.db, names)).map(({ stream }) => stream);
    const free = names.filter((one) => !frozen.includes(one));
    const [open] = await sql<{ runs: { id: number; status: string }[] | null; isOpen: boolean }[]>`
      SELECT runs, runs IS NOT NULL
        OR EXISTS (SELECT FROM slotsync.changes WHERE stream = ANY (${free}))
        OR EXISTS (SELECT FROM slotsync.records WHERE stream = ANY (${free}) AND check_after IS NOT NULL) AS "isOpen"
      FROM (SELECT jsonb_agg(jsonb_build_object('id', id, 'status', status) ORDER BY id) AS runs FROM slotsync.runs
        WHERE finished_at IS NULL AND kind <> 'reconcile' AND streams && ${names}::text[]) AS unfinished`;
    return { runs: open?.runs ?? [], isOpen: open?.isOpen ?? false };
  }

  return {
    name,
    sql,
    shapes,
    names,
    clock,
    service,
    nameOf,
    passTime,
    process,
    plain,
    queueSync,
    startSync,

    /** Rows of the mirror, all tables. */
    rowsOf: (table: Table) =>
      sql<ThingRow[]>`SELECT id, code, name, note, parent FROM ${sql(table)} WHERE world = ${name}`,

    /** By stream and key, the external ids of the objects that keys are linked to. */
    async readLinks(): Promise<ReadonlyMap<string, string>> {
      const links = await sql<{ name: string; id: string }[]>`
        SELECT stream || ' ' || local_key AS name, external_id AS id FROM slotsync.links WHERE stream = ANY (${names})`;
      return new Map(links.map(({ name: of, id }) => [of, id]));
    },

    /** External id of a row, as the configuration says. */
    extIdOf: ({ prefix, identifiedBy }: StreamShape, row: ThingRow) =>
      `${prefix}${name}_${row[identifiedBy]}`,

    /**
     * A transaction in the mirror: rows go, come, and change. Their keys are in the inbox with its commit, as triggers
     * would put them.
     */
    async change(
      table: Table,
      {
        gone = [],
        rows = [],
        push = true,
      }: { gone?: readonly string[]; rows?: readonly ThingRow[]; push?: boolean },
      more?: { table: Table; gone?: readonly string[]; rows?: readonly ThingRow[] },
    ): Promise<void> {
      const parts = [{ table, gone, rows }, ...(more ? [{ gone: [], rows: [], ...more }] : [])];
      const write = async (tx: typeof sql, part: (typeof parts)[number]) => {
        const pushed = push ? [...part.gone, ...part.rows.map(({ id }) => id)] : [];
        await tx`
          WITH gone AS (DELETE FROM ${tx(part.table)} WHERE world = ${name} AND id = ANY (${[...part.gone]})),
          came AS (
            INSERT INTO ${tx(part.table)} (world, id, code, name, note, parent)
            SELECT ${name}, id, code, name, note, parent
            FROM jsonb_to_recordset(${JSON.stringify(part.rows)}::text::jsonb)
              AS r(id text, code text, name text, note text, parent text)
            ON CONFLICT (world, id) DO UPDATE SET code = excluded.code, name = excluded.name,
              note = excluded.note, parent = excluded.parent)
          INSERT INTO slotsync.changes (stream, local_key) SELECT ${nameOf(part.table)}, unnest(${pushed}::text[])`;
      };
      if (!more) for (const part of parts) await write(sql, part);
      else
        await sql.begin(async (tx) => {
          for (const part of parts) await write(tx as unknown as typeof sql, part);
        });
    },

    /** Records that are given up because their rows give another external id. */
    listChangedIds: () => sql<{ stream: string; localKey: string; externalId: string }[]>`
      SELECT stream, local_key AS "localKey", external_id AS "externalId" FROM slotsync.records
      WHERE stream = ANY (${names}) AND status = 'dead' AND error_code = 'external_id_changed'`,

    /** An operator retries them. Returns those that are sent again. */
    retryChangedIds: async () => {
      const changed = { keys: [], status: 'dead', code: 'external_id_changed' } as const;
      const retried = names.map((stream) => retryRecords(plain.state.db, { stream, ...changed }));
      return (await Promise.all(retried)).flat();
    },

    /** Returns true if a worker would sync a stream soon, because rows or former objects of the stream have no row. */
    async isDueForGoneRows(): Promise<boolean> {
      const due = await sql`
        SELECT FROM slotsync.streams WHERE stream = ANY (${names}) AND due_since IS NOT NULL AND due_reason = 'rows_gone'`;
      return due.length > 0;
    },

    /** Runs that have not ended. */
    listOpenRuns: async () => (await readOpen()).runs,

    /** The workers' part when everything is quiet again: runs are worked to their end, the inbox is emptied. */
    async finish(): Promise<string[]> {
      for (let rounds = 0; rounds < ROUNDS_MOST; rounds++) {
        const { runs, isOpen } = await readOpen();
        if (!isOpen) return [];
        await passTime(DAY_SECONDS);
        for (const { id, status } of runs) await plain.work(id, status !== 'planning');
        await plain.takeFromInbox();
      }
      return ['guarantee 3: runs, changes or checks are left that never end'];
    },
  };
}
