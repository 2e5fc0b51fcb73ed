// Worker processes and the supervisor that starts one anew when one is gone, as systemd would. Each process has a
// database user of its own, so that its claims can be told from the others'.
import { setTimeout as pause } from 'node:timers/promises';
import type { Running } from './program.js';

export interface WorkerProcess {
  /** Also its user in the database. */
  readonly name: string;
  readonly running: Running;
  state: 'running' | 'frozen' | 'gone';
  /** We ended it. */
  killed: boolean;
  /** It may be waking from a sleep its claims did not outlive; it is left alone until then. */
  busyUntil: number;
}

export type WorkerPool = ReturnType<typeof createWorkerPool>;

const RESPAWN_MS = 500;

export function createWorkerPool(options: {
  /** Starts `slotsync worker` as this database user. */
  spawn: (name: string) => Running;
  note: (what: string) => void;
}) {
  const { spawn, note } = options;
  const all: WorkerProcess[] = [];
  const wished = { count: 0 };

  function add(): WorkerProcess {
    const name = `worker_${all.length + 1}`;
    const running = spawn(name);
    const worker: WorkerProcess = { name, running, state: 'running', killed: false, busyUntil: 0 };
    all.push(worker);
    void running.finished.then(async ({ code }) => {
      worker.state = 'gone';
      if (!worker.killed && wished.count > 0) {
        note(`${name} ended unasked with ${code}: ${running.output().trim().slice(-1500)}`);
      }
      await pause(RESPAWN_MS);
      if (living().length < wished.count) note(`${add().name} started`);
    });
    return worker;
  }

  const living = () => all.filter(({ state }) => state !== 'gone');
  const signal = ({ running }: WorkerProcess, name: NodeJS.Signals) => running.child.kill(name);

  return {
    all: () => all,
    living,
    /** The figures of those who run undisturbed. */
    running: () => all.filter(({ state, busyUntil }) => state === 'running' && busyUntil < performance.now()),
    /** So many from now on. */
    start(count: number): WorkerProcess[] {
      wished.count = count;
      return Array.from({ length: count - living().length }, add);
    },
    /** So many are wanted; those above are not replaced when they end. */
    want(count: number): void {
      wished.count = count;
    },
    async kill(worker: WorkerProcess): Promise<void> {
      worker.killed = true;
      signal(worker, 'SIGKILL');
      await worker.running.finished;
    },
    /** Asks it to end, and resolves when it has finished what it had in work. It is not replaced. */
    async stop(worker: WorkerProcess): Promise<void> {
      wished.count = Math.min(wished.count, living().length - 1);
      signal(worker, 'SIGTERM');
      await worker.running.finished;
    },
    freeze(worker: WorkerProcess): void {
      worker.state = 'frozen';
      signal(worker, 'SIGSTOP');
    },
    wake(worker: WorkerProcess): void {
      if (worker.state !== 'frozen') return;
      worker.state = 'running';
      signal(worker, 'SIGCONT');
    },
    /** Ends all of them, whatever state they are in. */
    async close(): Promise<void> {
      wished.count = 0;
      for (const worker of living()) {
        worker.killed = true;
        signal(worker, 'SIGKILL');
      }
      await Promise.all(all.map(({ running }) => running.finished));
    },
  };
}
