// The parts of a schedule. An actor runs the real use cases, and parks before each step until the scheduler lets it go. A step
// is a statement of the state, a reading of the mirror, a request at the service, or its answer.
import { setImmediate as turn } from 'node:timers/promises';

/** The step that an actor is about to take. */
export interface Step {
  label: string;
  /** Returns false as long as the step cannot be done. Undefined: the step can always be done. */
  when?: () => boolean;
  /** True if the actor waits voluntarily. A switch to another actor is then no preemption. */
  isPause?: boolean;
  /** True if no other actor can observe the step, so that no preemption before the step is tried. */
  isLocal?: boolean;
  /** Set while the actor waits for the service. */
  request?: PendingRequest;
}

/** A request that has arrived at the service, or its answer that is on its way back. */
export interface PendingRequest {
  place: 'request' | 'answer';
  isWrite: boolean;
  /** Breaks the connection. The client gets no answer, and a request that has only arrived is not processed. */
  lose(): void;
  /** Lets the service process the request nevertheless. */
  process(): Promise<void>;
}

interface ParkedStep extends Step {
  run(): Promise<void>;
}

export interface Actor {
  name: string;
  /** True for an event, which is not a process. The scheduler picks events last, and leaving an event is no preemption. */
  isEvent: boolean;
  /** Parks, and does the work when the scheduler lets this actor go. Never resolves after a kill. */
  step<T>(step: Step, work: () => T | Promise<T>): Promise<T>;
  /** Starts the actor: it runs to its first step. */
  start(body: (actor: Actor) => Promise<void>): void;
  isAlive(): boolean;
  isKilled(): boolean;
  /** Error that the actor threw. */
  failure(): unknown;
  /** Next step of the actor. */
  next(): Step | undefined;
  isEnabled(): boolean;
  /** Takes the next step away from the actor. */
  drop(): void;
  kill(): void;
  /** Lets the actor take its next step. */
  go(): void;
  /** Returns true if the actor has parked or ended within this time. */
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
