// Plays one schedule. At each step, picks the next actor: first by the given choices, then without a preemption. Records the
// other actors that could have gone, so that their schedules can be played too.
import type { Actor } from './actor.js';

/** A decision: the actor that went, and the actors that could have gone. */
export interface Decision {
  chosen: string;
  /** Other actors that could have gone, and whether each would have preempted the actor before. */
  others: readonly { name: string; preempts: boolean }[];
  preempts: boolean;
  /** Kind of step that the actor before was about to take. */
  at: 'write' | 'request' | 'other';
}

export interface Played {
  decisions: Decision[];
  trace: string[];
  /** Index of the first choice that could not be followed. */
  divergedAt?: number;
}

export interface Scheduling {
  actors: readonly Actor[];
  /** Names of actors, one for each step. After these choices no actor is preempted. */
  choices: readonly string[];
  /** Expires all claims, and lets waiting actors look again. Called when every actor waits for another actor. */
  passTime(): Promise<void>;
  /** Called before each step. */
  onStep(): void;
  /** Returns true if the actor waits for a lock of the database. */
  isBlocked(actor: Actor): Promise<boolean>;
}

/** Milliseconds that a step may take before the scheduler asks whether the actor waits for a lock. */
const STEP_MS = 400;
const STEPS_MOST = 1500;
/** Number of times that every actor may wait for another actor. */
const STALLS_MOST = 5;

/** Plays the schedule until no actor can go on. Throws if the schedule hangs. */
export async function playSchedule({
  actors,
  choices,
  passTime,
  onStep,
  isBlocked,
}: Scheduling): Promise<Played> {
  const decisions: Decision[] = [];
  const trace: string[] = [];
  let current: Actor | undefined;
  let divergedAt: number | undefined;
  let stalls = 0;
  const settle = (actor: Actor) => settleActor(actor, isBlocked, () => trace.join('\n'));
  for (const actor of actors) await settle(actor);

  while (decisions.length < STEPS_MOST) {
    const enabled = actors.filter((actor) => actor.isEnabled());
    const [first] = enabled;
    if (!first) {
      const isWaiting = actors.some((actor) => !actor.isEvent && actor.isAlive());
      if (!isWaiting || stalls++ >= STALLS_MOST) break;
      trace.push('      time passes');
      await passTime();
      continue;
    }
    const before = current;
    const isHeldBack =
      before !== undefined && enabled.includes(before) && !before.isEvent && before.next()?.isPause !== true;
    const preempts = (actor: Actor) => isHeldBack && actor !== before;
    const isLocal = isHeldBack && before.next()?.isLocal === true;
    const byDefault = isHeldBack ? before : first;
    let chosen = byDefault ?? first;
    const wanted = choices[decisions.length];
    if (wanted !== undefined && divergedAt === undefined) {
      const found = enabled.find(({ name }) => name === wanted);
      if (found) chosen = found;
      else divergedAt = decisions.length;
    }
    decisions.push({
      chosen: chosen.name,
      preempts: preempts(chosen),
      at: placeOf(before),
      others: enabled
        .filter((actor) => actor !== chosen && !(isLocal && preempts(actor)))
        .map((actor) => ({ name: actor.name, preempts: preempts(actor) })),
    });
    const step = chosen.next();
    onStep();
    chosen.go();
    for (const actor of [chosen, ...actors]) if (actor.isAlive()) await settle(actor);
    // A transaction knows its statements only by now.
    trace.push(`${String(decisions.length).padStart(3)} ${chosen.name} ${step?.label ?? ''}`);
    current = chosen;
  }
  return { decisions, trace, ...(divergedAt === undefined ? {} : { divergedAt }) };
}

/** Waits until the actor has parked or waits for a lock. Throws if it does neither. */
export async function settleActor(
  actor: Actor,
  isBlocked: (actor: Actor) => Promise<boolean>,
  trace: () => string,
): Promise<void> {
  for (let asked = 0; asked < 50; asked++) {
    if (await actor.settled(STEP_MS)) return;
    if (await isBlocked(actor)) return;
  }
  throw new Error(`${actor.name} neither parked nor ended:\n${trace()}`);
}

function placeOf(actor: Actor | undefined): Decision['at'] {
  const request = actor?.next()?.request;
  return request === undefined ? 'other' : request.isWrite ? 'write' : 'request';
}

/** Writes choices as a short text, for example `A12M1B3`: names of actors with their numbers of steps. */
export function writeChoices(choices: readonly string[]): string {
  return choices.join('').replace(/([A-Z])\1*/g, (run, name: string) => `${name}${run.length}`);
}

export function readChoices(text: string): string[] {
  return [...text.matchAll(/([A-Z])(\d+)/g)].flatMap(([, name = '', count]) =>
    Array.from({ length: Number(count) }, () => name),
  );
}
