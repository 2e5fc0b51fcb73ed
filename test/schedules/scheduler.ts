// Runs one schedule: at each step it decides which actor goes next, first by the given choices, then without preempting
// anybody. Which others could have gone is noted, so that every one of those schedules can be run, too.
import type { Actor } from './actor.js';

/** A decision: who went, and who could have. */
export interface Decision {
  chosen: string;
  /** The others that could have gone, and whether that would have preempted the one that went before. */
  others: readonly { name: string; preempts: boolean }[];
  preempts: boolean;
  /** The step of the actor that went before. */
  at: 'write' | 'request' | 'other';
}

export interface Played {
  decisions: Decision[];
  trace: string[];
  /** The prescribed choices could not be followed from here on. */
  divergedAt?: number;
}

export interface Scheduling {
  actors: readonly Actor[];
  /** Names of actors, one for each step; after them nobody is preempted. */
  choices: readonly string[];
  /** For when everybody waits for somebody else: all claims expire, and who waits may look again. */
  passTime(): Promise<void>;
  /** To be called before each step. */
  onStep(): void;
  /** Whether the actor waits for a lock of the database. */
  isBlocked(actor: Actor): Promise<boolean>;
}

/** How long an actor may take for a step before it is asked whether it waits for a lock. Milliseconds. */
const STEP_MS = 400;
const STEPS_MOST = 1500;
/** So often may everybody wait for somebody else. */
const STALLS_MOST = 5;

/** Plays the schedule until no actor can go on. Throws when it hangs. */
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

/** Waits until the actor has parked; one that waits for a lock is left alone. Throws when it does neither. */
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

/** Choices as a short text: `A12M1B3`, the names of actors with how many steps each. */
export function writeChoices(choices: readonly string[]): string {
  return choices.join('').replace(/([A-Z])\1*/g, (run, name: string) => `${name}${run.length}`);
}

export function readChoices(text: string): string[] {
  return [...text.matchAll(/([A-Z])(\d+)/g)].flatMap(([, name = '', count]) =>
    Array.from({ length: Number(count) }, () => name),
  );
}
