// A seed is a schedule of faults over a world at work, then quiet, then the question whether everything is as it
// must be. The seed decides which faults come, when and for how long, and which rows change; what the processes are
// doing at that moment is theirs.
import { mkdir, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { createRandom } from '../../src/sandbox/request-steps.js';
import { describeWorld, findFaults, settle } from './chaos-check.js';
import { createFaultPlayer } from './chaos-faults.js';
import { createMirrorWriter, createRoomsAndCourses } from './chaos-mirror.js';
import { openChaosWorld, type ChaosWorld, type Store } from './chaos-world.js';
import { messageOf } from '../../src/errors/errors.js';

export interface ChaosReport {
  /** The kind that was played: faults over rooms and courses, or a history of ownership. */
  kind: 'chaos' | 'history';
  seed: number;
  store: Store;
  /** The broken invariants; empty when all is well. */
  faults: string[];
  /** A line of figures. */
  summary: string;
  /** The folder with timeline, rows and logs of a failure. */
  evidence?: string;
}

const SECOND = 1000;
const WORKERS = 4;
const LATENCY_MS = 40;
/** Courses on which the service's people wrote something of their own before we came. */
const NOTED = 40;

/** Plays one seed. Throws only when the world cannot be opened or closed. */
export async function playSeed(
  seed: number,
  options: { store: Store; seconds?: number; rooms?: number; courses?: number },
): Promise<ChaosReport> {
  const { store, seconds = 40, rooms = 1000, courses = 1500 } = options;
  const startedAt = performance.now();
  const notes = new Map<string, string>();
  const world = await openChaosWorld({
    store,
    mirror: createRoomsAndCourses({ rooms, courses, notes }),
    sandbox: { latencyMs: LATENCY_MS, jitterMs: LATENCY_MS, tokenSeconds: 12, seed },
    hasNetwork: seed % 2 === 0,
  });
  try {
    writeNotes(world, notes);
    const stopped = new AbortController();
    const writer = createMirrorWriter({ sql: world.sql, seed: seed + 1, rooms, courses });
    const player = createFaultPlayer({ world, random: createRandom(seed), latencyMs: LATENCY_MS });
    const operator = createOperator(world, createRandom(seed + 2));

    // Rooms are there before the first fault; courses come in the middle of them.
    await world.run(['sync', 'rooms']);
    world.note('rooms are there');
    world.workers.start(WORKERS);
    const busy = [
      every(stopped.signal, createRandom(seed + 3), [50, 300], writer.step),
      every(stopped.signal, createRandom(seed + 4), [1 * SECOND, 3 * SECOND], operator.ask),
      every(stopped.signal, createRandom(seed + 5), [0.7 * SECOND, 3 * SECOND], player.step),
    ];
    await pause(seconds * SECOND);
    stopped.abort();
    await Promise.all(busy);
    await player.calm();
    world.note('quiet');

    const settled = await settle(world);
    const faults = [...settled.faults, ...(await findFaults(world))];
    const report = {
      kind: 'chaos' as const,
      seed,
      store,
      faults,
      summary: [
        `seed ${seed} on ${store}: ${faults.length === 0 ? 'well' : 'NOT WELL'}`,
        `${Math.round((performance.now() - startedAt) / SECOND)} s`,
        `quiet after ${settled.syncs} syncs in ${settled.seconds} s`,
        `${writer.changes()} changes`,
        player.told(),
        `${operator.runs()} runs asked for`,
        `${world.service.ours().length} requests, ${world.service.ours().filter(({ status }) => status === 429).length} refused`,
        `most in any second ${world.service.mostOfOursInAnySecond()}`,
      ].join('; '),
    };
    return faults.length === 0 ? report : { ...report, evidence: await keepEvidence(world, report) };
  } finally {
    await world.close();
  }
}

/** Before us, people made some of the courses at the service and wrote on them what is nobody else's business. */
function writeNotes({ service }: ChaosWorld, notes: Map<string, string>): void {
  for (let id = 1; id <= NOTED; id++) {
    const extId = `course_${id}`;
    const text = `remember ${id}`;
    notes.set(extId, text);
    const fields = [{ fieldId: 'course.note', values: [text] }];
    service.sandbox()?.putObject({ extId, typeId: 'course', fields });
  }
}

/** Asks for runs now and then, as cron does: of everything or of one stream. What fails is asked for another time. */
function createOperator({ run, note }: ChaosWorld, random: () => number) {
  let asked = 0;
  return {
    runs: () => asked,
    async ask(): Promise<void> {
      const chance = random();
      const streams = chance < 0.2 ? [] : chance < 0.6 ? ['rooms'] : ['courses'];
      const { code, stdout, stderr } = await run(['sync', '--detach', ...streams]);
      asked++;
      note(`sync --detach ${streams.join()}: ${code} ${(stdout + stderr).trim().split('\n')[0] ?? ''}`);
    },
  };
}

/** Takes step after step, so far apart by chance, until `signal` aborts. */
async function every(
  signal: AbortSignal,
  random: () => number,
  [leastMs, mostMs]: readonly [number, number],
  step: () => Promise<unknown>,
): Promise<void> {
  while (!signal.aborted) {
    await step();
    await pause(leastMs + random() * (mostMs - leastMs), undefined, { signal }).catch(() => undefined); // that ends it
  }
}

/** Writes what is known of a failure into a folder, and returns its path. */
export async function keepEvidence(world: ChaosWorld, report: ChaosReport): Promise<string> {
  const folder = path.join(tmpdir(), `slotsync-${report.kind}-failed-${report.seed}-${report.store}`);
  await mkdir(folder, { recursive: true });
  const described = await describeWorld(world).catch((error: unknown) => messageOf(error));
  const text = [report.summary, ...report.faults, '', world.timeline(), '', described].join('\n');
  await writeFile(path.join(folder, 'report.txt'), text);
  await writeFile(path.join(folder, 'arrivals.json'), JSON.stringify(world.service.arrivals()));
  for (const { name, running } of world.workers.all()) {
    await writeFile(path.join(folder, `${name}.log`), running.output());
  }
  return folder;
}
