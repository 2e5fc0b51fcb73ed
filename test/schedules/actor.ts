// The parts of a schedule. An actor runs the real use cases, and before each of its steps it parks until the scheduler
// lets it go: a statement of the state, a reading of the mirror, a request at the service, its answer.
import { setImmediate as turn } from 'node:timers/promises';

/** The step that an actor is about to take. */
export interface Step {
  label: string;
  /** False: it cannot be done yet. */
  when?: () => boolean;
  /** The actor waits of its own accord: that another one goes instead is not a preemption. */
  isPause?: boolean;
  /** Nobody else can tell whether it was done yet: nobody is let go in front of it. */
  isLocal?: boolean;
  /** Set while the actor waits for the service. */
  request?: PendingRequest;
}

/** A request that has arrived at the service, or its answer that is on its way back. */
export interface PendingRequest {
  place: 'request' | 'answer';
  isWrite: boolean;
  /** The connection breaks: the client gets no answer. What has only arrived is not processed. */
  lose(): void;
  /** The service processes it all the same. */
  process(): Promise<void>;
}

interface ParkedStep extends Step {
  run(): Promise<void>;
}

export interface Actor {
  name: string;
  /** Not a process, but what happens to others. It is let go last, and going on after it is not a preemption. */
  isEvent: boolean;
  /** Does the work when the scheduler lets this actor go; never when it was killed before. */
  step<T>(step: Step, work: () => T | Promise<T>): Promise<T>;
  /** Starts the actor: it runs to its first step. */
  start(body: (actor: Actor) => Promise<void>): void;
  isAlive(): boolean;
  isKilled(): boolean;
  /** The error it threw. */
  failure(): unknown;
  /** Its next step. */
  next(): Step | undefined;
  isEnabled(): boolean;
  /** Takes the next step away from the actor. */
  drop(): void;
  kill(): void;
  /** Lets the actor take its next step. */
  go(): void;
  /** Whether it has parked or ended within so many milliseconds. */
  settled(ms: number): Promise<boolean>;
}

export function createActor(name: string, isEvent = false): Actor {
  let parked: ParkedStep[] = [];
  let busy = 0;
  let state: 'alive' | 'ended' | 'killed' = 'alive';
  let failure: unknown;
  let onChange = () => {};
  const actor: Actor = {
    name,
    isEvent,

    step<T>(step: Step, work: () => T | Promise<T>): Promise<T> {
      return new Promise<T>((resolve, reject) => {
        const run = async () => {
          busy++;
          try {
            resolve(await work());
          } catch (error) {
            // oxlint-disable-next-line typescript/prefer-promise-reject-errors
            reject(error);
          } finally {
            busy--;
            onChange();
          }
        };
        if (state === 'killed') return;
        parked.push(Object.assign(step, { run }));
        onChange();
      });
    },

    start(body) {
      body(actor)
        .then(
          () => (state = state === 'killed' ? state : 'ended'),
          (error: unknown) => {
            failure = error;
            state = state === 'killed' ? state : 'ended';
          },
        )
        .finally(() => onChange());
    },

    isAlive: () => state === 'alive',
    isKilled: () => state === 'killed',
    failure: () => failure,
    next: () => parked[0],
    isEnabled: () =>
      state === 'alive' && busy === 0 && parked[0] !== undefined && parked[0].when?.() !== false,
    drop: () => void parked.shift(),
    kill() {
      state = 'killed';
      parked = [];
      onChange();
    },

    go: () => void parked.shift()?.run(),

    async settled(ms) {
      const isQuiet = () => state !== 'alive' || (busy === 0 && parked.length > 0);
      const deadline = performance.now() + ms;
      while (true) {
        if (isQuiet()) {
          // Its work beside the parked step ends first.
          await turn();
          await turn();
          if (isQuiet()) return true;
        }
        const left = deadline - performance.now();
        if (left <= 0) return false;
        await new Promise<void>((resolve) => {
          const timer = setTimeout(resolve, left);
          onChange = () => {
            clearTimeout(timer);
            resolve();
          };
          if (isQuiet()) onChange();
        });
      }
    },
  };
  return actor;
}
