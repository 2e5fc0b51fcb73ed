// Faults, drawn by seeded chance: to processes, to stores, to the service and on the way to it.
import { setTimeout as pause } from 'node:timers/promises';
import { messageOf } from '../../src/errors/errors.js';
import type { Faults } from '../../src/sandbox/faults.js';
import { DISTURBANCES } from './disturbances.js';
import type { WorkerProcess } from './chaos-workers.js';
import type { ChaosWorld } from './chaos-world.js';

const SECOND = 1000;
/** After this nothing of a dead or frozen process is on its way any more: longer than any latency played here. */
const UNDERWAY_MS = 2 * SECOND;
/** A worker frozen longer than its lock and its request's time. */
const LONG_FREEZE_MS = 23 * SECOND;
/** After waking, a worker whose claims were ended early is left to find that out. */
const WAKING_MS = 8 * SECOND;
/** Faults of the service while nothing special is on: there is always a little. */
const USUAL: Faults = { status500: 0.005, reset: 0.005, loseAnswer: 0.01, brokenJson: 0.005 };

interface FaultKind {
  name: string;
  weight: number;
  /** At most so often in one seed. */
  most?: number;
  /** The part it disturbs: two faults of one part never overlap. */
  part: string;
  play: (draw: () => number) => Promise<string>;
}

/** `only`: the names of the kinds that may come; all of them, unless given. */
export function createFaultPlayer(options: {
  world: ChaosWorld;
  random: () => number;
  latencyMs: number;
  only?: readonly string[];
}) {
  const { world, random, latencyMs, only } = options;
  const { service, workers, postgres, redis, networks, note } = world;
  const playing = new Map<string, Promise<void>>();
  const played = new Map<string, number>();
  const calming = new AbortController();
  service.setFaults(USUAL);

  const lasts = (ms: number) => pause(ms, undefined, { signal: calming.signal }).catch(() => undefined); // calm() ends it
  const pick = (draw: () => number): WorkerProcess | undefined => {
    const able = workers.running();
    return able[Math.floor(draw() * able.length)];
  };
  const burst = async (faults: Faults, ms: number) => {
    service.setFaults(faults);
    await lasts(ms);
    service.setFaults(USUAL);
    return `for ${Math.round(ms)} ms`;
  };
  /** Ends the claims of one who is away, unless the lease shall expire. */
  const endClaims = async (worker: WorkerProcess, chance: number) => {
    if (chance < 0.3) return 'its claims stand';
    await pause(UNDERWAY_MS);
    return world.endClaimsOf([worker.name]).then(
      (ended) => `${ended} claims ended`,
      () => 'its claims stand', // the database is away, or the worker was frozen with them locked
    );
  };

  const disturbances = Object.entries(DISTURBANCES);
  const kinds: FaultKind[] = [
    {
      name: 'kill',
      part: 'process',
      weight: 3,
      async play(draw) {
        const worker = pick(draw);
        if (!worker) return 'nobody there';
        await workers.kill(worker);
        return `${worker.name}, ${await endClaims(worker, draw())}`;
      },
    },
    {
      name: 'freeze',
      part: 'short freeze',
      weight: 3,
      async play(draw) {
        const worker = pick(draw);
        if (!worker) return 'nobody there';
        const ms = 0.5 * SECOND + draw() * 3 * SECOND;
        workers.freeze(worker);
        await pause(ms);
        workers.wake(worker);
        return `${worker.name} for ${Math.round(ms)} ms`;
      },
    },
    {
      name: 'freeze past lock and claim',
      part: 'long freeze',
      weight: 2,
      most: 2,
      async play(draw) {
        const worker = pick(draw);
        if (!worker) return 'nobody there';
        workers.freeze(worker);
        const ended = await endClaims(worker, draw());
        await lasts(LONG_FREEZE_MS);
        worker.busyUntil = performance.now() + WAKING_MS;
        workers.wake(worker);
        return `${worker.name}, ${ended}`;
      },
    },
    {
      name: 'freeze, then kill',
      part: 'process',
      weight: 1,
      async play(draw) {
        const worker = pick(draw);
        if (!worker) return 'nobody there';
        workers.freeze(worker);
        await pause(draw() * 3 * SECOND);
        await workers.kill(worker);
        return `${worker.name}, ${await endClaims(worker, draw())}`;
      },
    },
    {
      name: 'PostgreSQL restarted',
      part: 'PostgreSQL',
      weight: 2,
      most: 2,
      async play() {
        await postgres.restart();
        return '';
      },
    },
    {
      name: 'PostgreSQL crashed',
      part: 'PostgreSQL',
      weight: 2,
      most: 2,
      async play(draw) {
        const ms = draw() * 3 * SECOND;
        await postgres.crash(ms);
        return `away for ${Math.round(ms)} ms`;
      },
    },
    {
      name: 'Redis restarted',
      part: 'Redis',
      weight: redis ? 2 : 0,
      most: 2,
      async play(draw) {
        const ms = draw() * 3 * SECOND;
        await redis?.restart('kept', ms);
        return `away for ${Math.round(ms)} ms`;
      },
    },
    {
      name: 'Redis emptied',
      part: 'Redis',
      weight: redis ? 2 : 0,
      most: 2,
      async play(draw) {
        const ms = draw() * 2 * SECOND;
        await redis?.restart('lost', ms);
        return `away for ${Math.round(ms)} ms`;
      },
    },
    {
      name: 'answers 500',
      part: 'service',
      weight: 2,
      play: (draw) => burst({ ...USUAL, status500: 0.3 + draw() * 0.7 }, (1 + draw() * 4) * SECOND),
    },
    {
      name: 'connections reset',
      part: 'service',
      weight: 2,
      play: (draw) => burst({ ...USUAL, reset: 0.3 + draw() * 0.7 }, (1 + draw() * 4) * SECOND),
    },
    {
      name: 'answers lost',
      part: 'service',
      weight: 3,
      play: (draw) => burst({ ...USUAL, loseAnswer: 0.3 + draw() * 0.7 }, (1 + draw() * 4) * SECOND),
    },
    {
      name: 'answers broken',
      part: 'service',
      weight: 2,
      play: (draw) => burst({ ...USUAL, brokenJson: 0.3 + draw() * 0.7 }, (1 + draw() * 3) * SECOND),
    },
    {
      name: 'requests carried out late',
      part: 'service',
      weight: 3,
      play: (draw) =>
        burst(
          { ...USUAL, late: 0.3 + draw() * 0.5, lateMs: draw() * 0.8 * world.requestTimeoutMs },
          (1 + draw() * 4) * SECOND,
        ),
    },
    {
      name: 'no answers',
      part: 'service',
      weight: 1,
      play: (draw) => burst({ ...USUAL, hang: 0.2 + draw() * 0.3 }, (1 + draw() * 2) * SECOND),
    },
    {
      name: 'service down',
      part: 'service',
      weight: 1,
      most: 2,
      async play(draw) {
        const ms = (1 + draw() * 4) * SECOND;
        await service.down();
        await lasts(ms);
        await service.up();
        return `for ${Math.round(ms)} ms`;
      },
    },
    {
      name: 'network to the stores',
      part: 'network to the stores',
      weight: networks.length > 0 ? 3 : 0,
      async play(draw) {
        const hop = networks[Math.floor(draw() * networks.length)];
        const [what, play] = disturbances[Math.floor(draw() * disturbances.length)] ?? [];
        const ms = (1 + draw() * 4) * SECOND;
        if (hop) await play?.(hop, ms);
        return `${what}, for ${Math.round(ms)} ms`;
      },
    },
    {
      name: 'slow network',
      part: 'network',
      weight: 1,
      async play(draw) {
        service.setLatency(100 + draw() * 200, 300);
        await lasts((2 + draw() * 3) * SECOND);
        service.setLatency(latencyMs, latencyMs);
        return '';
      },
    },
    {
      // Some requests outlast their timeout and are carried out after it.
      name: 'slow service',
      part: 'network',
      weight: 3,
      async play(draw) {
        const ms = (2 + draw() * 4) * SECOND;
        service.setLatency(200, 4 * SECOND);
        await lasts(ms);
        service.setLatency(latencyMs, latencyMs);
        return `for ${Math.round(ms)} ms`;
      },
    },
    {
      name: 'a stranger on the quota',
      part: 'stranger',
      weight: 2,
      async play(draw) {
        const perSecond = 3 + Math.floor(draw() * 6);
        await service.stranger(perSecond, (2 + draw() * 3) * SECOND);
        return `${perSecond}/s`;
      },
    },
    {
      name: 'tokens revoked',
      part: 'tokens',
      weight: 2,
      async play() {
        service.revokeTokens();
        return '';
      },
    },
  ];

  function draw(): FaultKind | undefined {
    const able = kinds.filter(({ name, part, most = Infinity, weight }) => {
      return (
        weight > 0 && (only?.includes(name) ?? true) && !playing.has(part) && (played.get(name) ?? 0) < most
      );
    });
    let chance = random() * able.reduce((sum, { weight }) => sum + weight, 0);
    return able.find(({ weight }) => (chance -= weight) < 0);
  }

  return {
    /** Begins one fault, which may last for a while. */
    async step(): Promise<void> {
      const kind = draw();
      // Drawn now, so that what a fault draws does not depend on how long others last.
      const numbers = [random(), random(), random(), random()];
      if (!kind) return;
      played.set(kind.name, (played.get(kind.name) ?? 0) + 1);
      note(`${kind.name} …`);
      const done = kind
        .play(() => numbers.shift() ?? 0)
        .then(
          (what) => note(`${kind.name}: ${what}`),
          (error: unknown) => note(`${kind.name} could not be played: ${messageOf(error)}`),
        )
        .finally(() => playing.delete(kind.part));
      playing.set(kind.part, done);
    },

    /** Ends every fault, and lets the claims of the dead run out. */
    async calm(): Promise<void> {
      calming.abort();
      await Promise.all(playing.values());
      service.setFaults({});
      service.clearFailures();
      service.setLatency(latencyMs, latencyMs);
      await pause(UNDERWAY_MS);
      const gone = workers.all().filter(({ state }) => state === 'gone');
      await world.endClaimsOf(gone.map(({ name }) => name));
    },

    told: () =>
      `${[...played.values()].reduce((sum, count) => sum + count, 0)} faults of ${played.size} kinds`,
  };
}
