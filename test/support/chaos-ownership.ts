// Twelve codes whose rows come and go under surrogate keys, in two streams with one template: whichever row has a code
// owns its object.
import { setTimeout as pause } from 'node:timers/promises';
import type postgres from 'postgres';
import { createRandom } from '../../src/sandbox/request-steps.js';
import { expectObject, type ChaosMirror } from './chaos-mirror.js';

const STREAMS = ['lectures', 'seminars'] as const;
type StreamName = (typeof STREAMS)[number];

/** Writers at work side by side, each with codes of its own. */
export const WRITERS = 3;
const CODES_EACH = 4;
/** Values are from so few that they return. */
const VERSIONS = 3;
/** A step waits so long for the workers at most: they may be dead, frozen or without an answer. */
const WAIT_MS = 10_000;
const LOOK_EVERY_MS = 10;

/** The first stream reads, merges and writes; the other writes without reading. */
export const OWNERSHIP: ChaosMirror = {
  configuration: `
import { defineConfig } from 'slotsync';
const stream = (from: string) => ({
  from, key: 'id', type: 'activity', externalId: 'y_{code}', batchSize: 5,
  fields: { 'activity.version': 'version', 'activity.stream': () => from },
  retire: 'deactivate' as const,
  limits: { retire: { count: 1_000_000 } },
});
export default defineConfig({
  service: { requestTimeoutMs: REQUEST_TIMEOUT_MS, lateWriteSeconds: 8 },
  streams: {
    lectures: stream('lectures'),
    seminars: { ...stream('seminars'), owns: 'object' },
  },
});
`,
  schema: {
    types: [{ extId: 'activity' }],
    fields: [{ extId: 'activity.version' }, { extId: 'activity.stream' }],
  },
  async fill(sql) {
    for (const stream of STREAMS)
      await sql`CREATE TABLE ${sql(stream)} (id serial PRIMARY KEY, code text NOT NULL UNIQUE, version int NOT NULL)`;
    // A row stays in each: nothing is retired by an empty source, whoever moved the last row away.
    for (const stream of STREAMS) await sql`INSERT INTO ${sql(stream)} (code, version) VALUES (${stream}, 0)`;
  },
  async readExpected(sql) {
    const rows = await sql<{ stream: StreamName; id: number; code: string; version: number }[]>`
      SELECT 'lectures' AS stream, id, code, version FROM lectures
      UNION ALL SELECT 'seminars', id, code, version FROM seminars`;
    return new Map(
      rows.map(({ stream, id, code, version }) => {
        const values = { 'activity.version': String(version), 'activity.stream': stream };
        return [`y_${code}`, expectObject(`${stream} ${id}`, 'activity', values)] as const;
      }),
    );
  },
};

/** The row that has a code, or had it last. */
interface Place {
  stream: StreamName;
  id: number;
  version: number;
  /** The version before it. */
  former: number;
  isThere: boolean;
}

/**
 * Writes a random history: each step is one transaction on one code's row. What happens, and in which order, is drawn
 * from the seed alone; a step that waits for a claim decides only when. The table's triggers report the keys.
 */
export function createHistoryWriter(options: {
  sql: postgres.Sql;
  seed: number;
  /** From 0 on. */
  writer: number;
  note: (what: string) => void;
  /** Lets something happen to the next write; called before the change that asks for it. */
  disturbWrite: (draw: () => number) => void;
}) {
  const { sql, note, disturbWrite } = options;
  const random = createRandom(options.seed + options.writer);
  const codes = Array.from(
    { length: CODES_EACH },
    (_, index) => `C${options.writer * CODES_EACH + index + 1}`,
  );
  const places = new Map<string, Place>();
  const drawVersion = () => 1 + Math.floor(random() * VERSIONS);
  let changes = 0;

  const insert = async (
    tx: postgres.Sql,
    code: string,
    to: Pick<Place, 'stream' | 'version'>,
    id?: number,
  ) => {
    const values = { code, version: to.version, ...(id === undefined ? {} : { id }) };
    const [row] = await tx<{ id: number }[]>`INSERT INTO ${tx(to.stream)} ${tx(values)} RETURNING id`;
    if (!row) throw new Error('an insert returns its row');
    return { ...to, id: row.id, former: places.get(code)?.version ?? to.version, isThere: true };
  };
  const remove = (tx: postgres.Sql, { stream, id }: Place) => tx`DELETE FROM ${tx(stream)} WHERE id = ${id}`;
  const otherThan = (stream: StreamName): StreamName => (stream === 'lectures' ? 'seminars' : 'lectures');

  /** Steps for a row that is there, and for one that is away. */
  function choose(
    place: Place,
    chance: number,
  ): [what: string, act: (tx: postgres.Sql, code: string) => Promise<Place>] {
    const { stream } = place;
    const version = drawVersion();
    const other = { stream: otherThan(stream), version };
    const same = { stream, version };
    const bring = (to: typeof same, id?: number) => (tx: postgres.Sql, code: string) =>
      insert(tx, code, to, id);
    const replace = (to: typeof same) => async (tx: postgres.Sql, code: string) => {
      await remove(tx, place);
      return insert(tx, code, to);
    };
    const update = (to: number) => async (tx: postgres.Sql) => {
      await tx`UPDATE ${tx(stream)} SET version = ${to} WHERE id = ${place.id}`;
      return { ...place, version: to, former: place.version };
    };
    if (!place.isThere) {
      if (chance < 0.4) return ['comes back under a new key', bring(same)];
      if (chance < 0.7) return ['comes back under its key', bring(same, place.id)];
      return ['comes back in the other stream', bring(other)];
    }
    if (chance < 0.3) return ['is updated', update(version)];
    if (chance < 0.4) return ['is set back', update(place.former)];
    if (chance < 0.45) return ['changes key, its values stay', replace({ stream, version: place.version })];
    if (chance < 0.65) return ['changes key', replace(same)];
    if (chance < 0.85) return ['moves to the other stream', replace(other)];
    return [
      'is deleted',
      async (tx) => {
        await remove(tx, place);
        return { ...place, isThere: false };
      },
    ];
  }

  async function change(code: string, chance: number): Promise<void> {
    const place = places.get(code);
    if (!place) throw new Error(`${code} was filled in`);
    const [what, act] = choose(place, chance);
    const next = await sql.begin((tx) => act(tx as unknown as postgres.Sql, code));
    places.set(code, next);
    changes++;
    note(`${code} ${what}: ${next.isThere ? `${next.stream} ${next.id} version ${next.version}` : 'no row'}`);
  }

  /** Waits until the record of the code's row is so. */
  async function waitFor(code: string, how: 'claimed' | 'settled'): Promise<boolean> {
    const deadline = performance.now() + WAIT_MS;
    while (performance.now() < deadline) {
      const { stream = '', id, isThere = false } = places.get(code) ?? {};
      const [record] = await sql<{ isClaimed: boolean; isSettled: boolean }[]>`
        SELECT claimed_by IS NOT NULL AS "isClaimed",
          claimed_by IS NULL AND NOT in_doubt AND status = ${isThere ? 'synced' : 'retired'} AS "isSettled"
        FROM slotsync.records WHERE stream = ${stream} AND local_key = ${String(id)}`;
      const isForgotten = !record && !isThere;
      if (how === 'claimed' ? record?.isClaimed : (record?.isSettled ?? isForgotten)) return true;
      await pause(LOOK_EVERY_MS);
    }
    return false;
  }

  /** Two changes: the second comes while the batch that carries out the first is at work. */
  async function hit(code: string): Promise<void> {
    const [first, second, lateness] = [random(), random(), random()];
    const forWrite = [random(), random(), random()];
    disturbWrite(() => forWrite.shift() ?? 0);
    await change(code, first);
    if (await waitFor(code, 'claimed')) note(`${code} is claimed`);
    await pause(lateness * lateness * 1000);
    await change(code, second);
  }

  return {
    changes: () => changes,

    /** The first rows: half of the codes in each stream. */
    async fill(): Promise<void> {
      for (const [index, code] of codes.entries()) {
        const stream = STREAMS[index % STREAMS.length] ?? 'lectures';
        places.set(code, await insert(sql, code, { stream, version: drawVersion() }));
      }
    },

    /** Changes any code, or two. */
    async step(): Promise<void> {
      const code = codes[Math.floor(random() * codes.length)] ?? '';
      await (random() < 0.6 ? hit(code) : change(code, random()));
      if (random() < 0.5) await waitFor(code, 'settled');
    },

    /** Two last changes of each code: what goes wrong here, no later change puts right. */
    async end(): Promise<void> {
      for (const code of codes) await hit(code);
    },
  };
}
