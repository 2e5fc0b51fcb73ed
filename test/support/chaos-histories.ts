// A seed of another kind: a history in which rows of a few codes change key, stream and values, come and go, under two
// workers and syncs beside them, with a slow service and lost answers; then quiet, and the question whether every object
// is as the row that has its code says.
import { createRandom } from '../../src/sandbox/request-steps.js';
import { setTimeout as pause } from 'node:timers/promises';
import { keepEvidence, type ChaosReport } from './chaos.js';
import { findFaults, settle } from './chaos-check.js';
import { createFaultPlayer } from './chaos-faults.js';
import { textOf } from './chaos-mirror.js';
import { createHistoryWriter, OWNERSHIP, WRITERS } from './chaos-ownership.js';
import { openChaosWorld, type ChaosWorld, type Store } from './chaos-world.js';

const SECOND = 1000;
const WORKERS = 2;
const LATENCY_MS = 60;
/** A lost answer's object is checked again within seconds. */
const REQUEST_TIMEOUT_MS = 2 * SECOND;
/** A write whose connection broke is carried out within this time. */
const LATE_MS = 8 * SECOND;
/** Before a step of a writer. */
const SYNC_CHANCE = 0.2;
const FAULT_CHANCE = 0.2;
/** At most so much time passes between two steps. */
const PAUSE_MS = 300;
const WATCH_EVERY_MS = 10;
const FAULTS = ['kill', 'freeze', 'freeze, then kill', 'slow service'];

/** Plays one seed. Throws only when the world cannot be opened or closed. */
export async function playHistory(
  seed: number,
  options: { store: Store; steps?: number },
): Promise<ChaosReport> {
  const { store, steps = 6 } = options;
  const startedAt = performance.now();
  const world = await openChaosWorld({
    store,
    mirror: OWNERSHIP,
    requestTimeoutMs: REQUEST_TIMEOUT_MS,
    sandbox: { latencyMs: LATENCY_MS, jitterMs: LATENCY_MS, seed },
  });
  const watching = watchObjects(world);
  try {
    await logRecords(world);
    const disturbWrite = createDisturbance(world);
    const writers = Array.from({ length: WRITERS }, (_, writer) =>
      createHistoryWriter({ sql: world.sql, seed: seed + 10, writer, note: world.note, disturbWrite }),
    );
    const random = createRandom(seed);
    const player = createFaultPlayer({ world, random, latencyMs: LATENCY_MS, only: FAULTS });
    const operator = createOperator(world, createRandom(seed + 2));

    for (const writer of writers) await writer.fill();
    await world.run(['triggers', 'install']);
    world.workers.start(WORKERS);
    await world.run(['sync']);
    world.note('every code is there');
    // Events beside them are ordered by their steps, not by the clock: a busy machine changes nothing.
    const write = async (writer: (typeof writers)[number], draw: () => number) => {
      for (let step = 1; step <= steps; step++) {
        if (draw() < SYNC_CHANCE) operator.ask();
        if (draw() < FAULT_CHANCE) await player.step();
        await writer.step();
        await pause(draw() * PAUSE_MS);
      }
      await writer.end();
    };
    await Promise.all(writers.map((writer, index) => write(writer, createRandom(seed + 20 + index))));
    await operator.finished();
    await player.calm();
    world.note('quiet');

    const settled = await settle(world);
    const faults = [...settled.faults, ...(await findFaults(world))];
    const report = {
      kind: 'history' as const,
      seed,
      store,
      faults,
      summary: [
        `history ${seed} on ${store}: ${faults.length === 0 ? 'well' : 'NOT WELL'}`,
        `${Math.round((performance.now() - startedAt) / SECOND)} s`,
        `quiet after ${settled.syncs} syncs in ${settled.seconds} s`,
        `${writers.reduce((sum, writer) => sum + writer.changes(), 0)} changes`,
        player.told(),
        `${operator.runs()} syncs beside`,
        `${world.service.puts().length} writes`,
      ].join('; '),
    };
    if (faults.length === 0) return report;
    await noteWrites(world);
    return { ...report, evidence: await keepEvidence(world, report) };
  } finally {
    clearInterval(watching);
    await world.close();
  }
}

/** Asks for syncs of everything or of one stream, in a process of their own or left to the workers; one at a time. */
function createOperator({ run, note }: ChaosWorld, random: () => number) {
  let asked = 0;
  let last: Promise<unknown> = Promise.resolve();
  return {
    runs: () => asked,
    ask(): void {
      const [which, how] = [random(), random()];
      const streams = which < 0.5 ? [] : which < 0.75 ? ['lectures'] : ['seminars'];
      const command = ['sync', ...streams, ...(how < 0.3 ? ['--detach'] : [])].join(' ');
      asked++;
      last = last.then(async () => {
        note(`${command} …`);
        const { code } = await run(command.split(' '));
        note(`${command}: ${code}`);
      });
    },
    finished: () => last,
  };
}

/** Draws what happens to the next write: often nothing, else its answer is lost, or it is carried out late, or neither. */
function createDisturbance({ service, note }: ChaosWorld) {
  return (draw: () => number): void => {
    const chance = draw();
    const [afterMs, delayMs] = [Math.round(draw() * 300), Math.round((0.1 + 0.9 * draw()) * LATE_MS)];
    if (chance < 0.4) return;
    if (chance < 0.75) {
      note(
        `the next write: its connection breaks after ${afterMs} ms, it is carried out after ${delayMs} ms`,
      );
      service.failNextWrite({ fault: 'late', afterMs, delayMs });
    } else {
      const fault = chance < 0.9 ? 'loseAnswer' : 'hang';
      note(`the next write: ${fault}`);
      service.failNextWrite({ fault });
    }
  };
}

/** Notes every change of an object at the service, whoever's write it was. */
function watchObjects({ service, note }: ChaosWorld): NodeJS.Timeout {
  const seen = new Map<string, string>();
  return setInterval(() => {
    for (const object of service.objects()) {
      const text = textOf(object);
      if (seen.get(object.extId) === text) continue;
      seen.set(object.extId, text);
      note(`  service: ${object.extId} ${text}`);
    }
  }, WATCH_EVERY_MS);
}

/** From now on every change of a record is kept, with the worker that made it. */
async function logRecords({ sql }: ChaosWorld): Promise<void> {
  await sql.unsafe(`
    CREATE TABLE chaos.record_log (id serial, at timestamptz DEFAULT clock_timestamp(), by text DEFAULT session_user, what jsonb);
    CREATE FUNCTION chaos.log_record() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN
        INSERT INTO chaos.record_log (what) VALUES (to_jsonb(coalesce(NEW, OLD)) || jsonb_build_object('operation', TG_OP));
        RETURN NULL;
      END $$;
    CREATE TRIGGER log_record AFTER INSERT OR UPDATE OR DELETE ON slotsync.records
      FOR EACH ROW EXECUTE FUNCTION chaos.log_record();`);
}

/** Adds what the state and the service noted to the timeline. */
async function noteWrites({ sql, service, noteAt }: ChaosWorld): Promise<void> {
  const logged = await sql<{ at: Date; by: string; what: Record<string, unknown> }[]>`
    SELECT at, by, what FROM chaos.record_log ORDER BY id`;
  for (const { at, by, what } of logged) {
    const shown = ['status', 'error_code', 'in_doubt', 'check_after', 'object_hash', 'claimed_by', 'run_id'];
    const facts = shown.flatMap((name) =>
      what[name] === null || what[name] === false
        ? []
        : [`${name}=${JSON.stringify(what[name]).slice(0, 30)}`],
    );
    noteAt(
      at.getTime(),
      `  state (${by}): ${String(what['operation'])} ${String(what['stream'])} ${String(what['local_key'])} ${String(what['external_id'])} ${facts.join(' ')}`,
    );
  }
  const offset = Date.now() - performance.now();
  for (const { at, method, path, status, objects } of service.arrivals())
    noteAt(at + offset, `  arrival: ${method} ${path} ${objects ?? ''} -> ${status}`);
}
