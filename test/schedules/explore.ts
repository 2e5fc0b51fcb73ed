// Plays all schedules of a scenario with at most two preemptions, after CHESS (Musuvathi et al., OSDI 2008). At each decision
// of a schedule that was played, every other actor that could have gone makes another schedule.
import { messageOf } from '../../src/errors/errors.js';
import { createActor, type Actor } from './actor.js';
import { createEdits } from './edits.js';
import type { ExploredWorld } from './explored-world.js';
import { bringToRest, createWatch, findFaults, readNotes, readPresent } from './judge.js';
import { createRoom, type Room, type StreamShape } from './room.js';
import { findUnshown } from './unshown.js';
import { playSchedule, writeChoices, type Decision } from './scheduler.js';

export interface Scenario {
  name: string;
  streams: readonly StreamShape[];
  /** Makes the rows, and plans them. Returns the facts that the actors need. */
  prepare(room: Room): Promise<Record<string, number>>;
  /** Work of each actor, by its name, a capital letter. An event happens at any time, or when its `when` permits. */
  processes: Record<string, (cast: Cast, actor: Actor) => Promise<void>>;
  events?: Record<string, (cast: Cast, actor: Actor) => Promise<void>>;
  /** True if several processes work one run. */
  sharesRun?: boolean;
  /** Returns external ids that may stay active although no row has them. */
  left?(room: Room): string[];
  /** Codes with which records may end unsent, because an object can belong to one row only. */
  refused?: readonly string[];
  /** True if unsent rows must be shown as held, due or failed when all actors have ended. */
  showsUnsent?: boolean;
  /** Returns faults of this scenario, when all actors have ended. */
  judgeAtOnce?(room: Room): Promise<string[]>;
  /** Returns faults of this scenario, when everything is quiet. */
  judge?(room: Room): Promise<string[]>;
}

/** The parts of a room that an actor of a scenario uses. */
export interface Cast {
  room: Room;
  known: Record<string, number>;
  /** The actor as a process of slotsync. */
  process: ReturnType<Room['process']>;
  actorOf(name: string): Actor;
  isWorking(): boolean;
  /** Must be called after a change of the mirror, or of the link of a row. */
  mirrorChanged(): Promise<void>;
  interrupted(): void;
  /** Enters a note in an object at the service, as a person. */
  edit(extId: string): void;
  /** Must be called when the streams are frozen or unfrozen. */
  freeze(isOn: boolean): void;
}

export const PREEMPTIONS_MOST = 2;

export interface Explored {
  schedules: number;
  /** Reports of the first schedules that failed. */
  failures: string[];
  failed: number;
}

export interface Outcome {
  decisions: Decision[];
  trace: string[];
  faults: string[];
  isDiverged: boolean;
}

/** Plays one schedule in a room of its own, lets everything come to rest, and judges the result. */
export async function playOne(
  world: ExploredWorld,
  scenario: Scenario,
  choices: readonly string[],
): Promise<Outcome> {
  const room = createRoom(world, world.newName(), scenario.streams);
  const known = await scenario.prepare(room);
  const watch = createWatch();
  const edits = createEdits(room);
  const { events = {}, processes } = scenario;
  const actors = [
    ...Object.keys(processes).map((name) => createActor(name)),
    ...Object.keys(events).map((name) => createActor(name, true)),
  ];
  const actorOf = (name: string): Actor => {
    const found = actors.find((actor) => actor.name === name);
    if (!found) throw new Error(`the scenario has no actor ${name}`);
    return found;
  };
  const mirrorChanged = async () => void watch.mirrorChanged(await readPresent(room));
  await mirrorChanged();
  const interrupted = () => {
    watch.interrupted();
    edits.interrupted();
  };
  world.service.attend(actors, { ...watch.observer, ...edits.observer });
  const isWorking = () => actors.some((actor) => !actor.isEvent && actor.isAlive());
  const worked = new Map<string, ReturnType<Room['process']>>();
  for (const actor of actors) {
    const process = room.process(actor, scenario.sharesRun !== true, {
      onRead: () => watch.read(actor),
      onBatch: async () => watch.begins(actor),
    });
    worked.set(actor.name, process);
    const { freeze } = watch;
    const { edit } = edits;
    const told = { mirrorChanged, interrupted, edit, freeze };
    const cast: Cast = { room, known, process, actorOf, isWorking, ...told };
    const body = processes[actor.name] ?? events[actor.name];
    if (body) actor.start((self) => body(cast, self));
  }
  const played = await playSchedule({
    actors,
    choices,
    passTime: async () => {
      interrupted();
      await room.passTime();
    },
    onStep: () => void room.clock.steps++,
    isBlocked: world.isBlocked,
  });
  const faults = [...watch.faults, ...edits.faults];
  const isAtRest = actors.every((actor) => actor.isEvent || !(actor.isAlive() || actor.isKilled()));
  for (const actor of actors) {
    if (actor.failure() !== undefined) faults.push(`${actor.name} threw ${messageOf(actor.failure())}`);
    if (!actor.isEvent && actor.isAlive())
      faults.push(`${actor.name} did not end: it waits for ${actor.next()?.label}`);
    actor.kill();
  }
  const { divergedAt } = played;
  const isDiverged = divergedAt !== undefined;
  if (isDiverged) faults.push(`the choices could not be followed from step ${divergedAt + 1} on`);
  if (scenario.showsUnsent)
    faults.push(...(await findUnshown(room, { isDueEnough: true, unnoticed: new Set() })));
  faults.push(...((await scenario.judgeAtOnce?.(room)) ?? []));
  edits.rest(await readNotes(room));
  faults.push(...(await bringToRest(room)));
  faults.push(
    ...(await findFaults(room, watch.sent, {
      left: scenario.left?.(room),
      refused: scenario.refused,
      edits,
    })),
    ...((await scenario.judge?.(room)) ?? []),
  );
  if (isAtRest) world.keepMirrors();
  else await world.closeMirrors();
  return { decisions: played.decisions, trace: played.trace, faults, isDiverged };
}

/** A schedule to be played. If only a part is played, schedules of a higher rank come first. */
interface Planned {
  choices: string[];
  preemptions: number;
  rank: number;
}

/** Share of the remaining schedules for each number of preemptions, if only a part is played. */
const SHARES = [1, 0.7, 1];
/** Ranks by the place of a preemption. Most faults need a preemption during a request, above all during a write. */
const RANKS = { write: 2, request: 1, other: 0 } as const;

/**
 * Plays the schedules, those with fewer preemptions first. `most`: so many at most, with preemptions during requests
 * first, and others chosen evenly.
 */
export async function explore(world: ExploredWorld, scenario: Scenario, most = Infinity): Promise<Explored> {
  const explored: Explored = { schedules: 0, failures: [], failed: 0 };
  const levels: Planned[][] = [[{ choices: [], preemptions: 0, rank: 2 }], [], []];
  const isTaken = new Set<string>();
  for (const [preemptions, open] of levels.entries()) {
    let left = Math.ceil((most - explored.schedules) * (SHARES[preemptions] ?? 1));
    for (let next = takeNext(open, left); next && left > 0; next = takeNext(open, --left)) {
      const outcome = await playAsChosen(world, scenario, next.choices);
      explored.schedules++;
      if (outcome.faults.length > 0) {
        explored.failed++;
        if (explored.failures.length < 3) explored.failures.push(report(scenario, outcome));
      }
      for (const other of branch(scenario, outcome.decisions, next)) {
        const name = other.choices.join('');
        if (isTaken.has(name)) continue;
        isTaken.add(name);
        levels[other.preemptions]?.push(other);
      }
    }
  }
  return explored;
}

/** Plays a schedule again if its choices could not be followed: on a slow machine, workers of one run may change their order. */
async function playAsChosen(world: ExploredWorld, scenario: Scenario, choices: readonly string[]) {
  let outcome = await playOne(world, scenario, choices);
  for (let again = 0; again < 2 && outcome.isDiverged; again++)
    outcome = await playOne(world, scenario, choices);
  return outcome;
}

/** Takes a schedule of the highest rank from the list. Of the lowest rank, takes `left` schedules evenly. */
function takeNext(open: Planned[], left: number): Planned | undefined {
  const rank = Math.max(...open.map((one) => one.rank));
  if (rank > 0)
    return open.splice(
      open.findIndex((one) => one.rank === rank),
      1,
    )[0];
  const skipped = Math.floor(open.length / Math.min(left, open.length));
  return open.splice(0, skipped)[Math.floor(skipped / 2)];
}

/** Returns the schedules that choose another actor at one step after the given choices. */
function branch(
  { sharesRun = false }: Scenario,
  decisions: readonly Decision[],
  { choices, preemptions, rank }: Planned,
): Planned[] {
  const names = decisions.map(({ chosen }) => chosen);
  return decisions.slice(choices.length).flatMap(({ others, at }, step) =>
    others
      .map(({ name, preempts }) => ({
        choices: [...names.slice(0, choices.length + step), name],
        preemptions: preemptions + (preempts ? 1 : 0),
        // For one run it matters only who plans it.
        rank: sharesRun ? 0 : preempts ? RANKS[at] : rank,
      }))
      .filter((next) => next.preemptions <= PREEMPTIONS_MOST),
  );
}

/** Describes a schedule that failed, and how to play it alone. */
export function report({ name }: Scenario, { decisions, trace, faults }: Outcome): string {
  const choices = writeChoices(decisions.map(({ chosen }) => chosen));
  return [
    ...faults,
    ...trace,
    `Play it alone: SLOTSYNC_SCHEDULE='${name}:${choices}' npm run test:schedules`,
  ].join('\n  ');
}
