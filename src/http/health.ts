// The two questions of an orchestrator. Liveness: is the process worth keeping, or should it be restarted? One that has not
// reached its state for minutes does no work that a restart could interrupt. Readiness: can it work now?
import { errorEntry } from '../errors/error-catalogue.js';
import { codeOf } from '../errors/errors.js';
import { json } from './http-server.js';

/** Without the state for longer than this, the process is restarted: only a restart helps where its connections hang. */
const UNREACHED_MS = 5 * 60_000;

export interface HealthDeps {
  /** The state of the process. */
  phase: () => 'starting' | 'running' | 'stopping' | 'ended';
  /** Since when it sends nothing, and why; null: it sends. */
  sendingStopped: () => { since: Date; code: string } | null;
  /** Each resolves when that part answers, and has a time limit of its own. */
  checks: { readonly state: () => Promise<unknown>; readonly [part: string]: () => Promise<unknown> };
  /** A monotonic clock in milliseconds. */
  clock?: () => number;
}

export function createHealth({ phase, sendingStopped, checks, clock = () => performance.now() }: HealthDeps) {
  /** Since the first look that failed; undefined: the last one did not. */
  let unreachedSince: number | undefined;
  return {
    /** 200 while the process works. The answer itself shows that its event loop is not blocked. */
    async liveness(): Promise<Response> {
      await checks.state().then(
        () => (unreachedSince = undefined),
        () => (unreachedSince ??= clock()),
      );
      const now = phase();
      const alive = now !== 'ended' && clock() - (unreachedSince ?? clock()) <= UNREACHED_MS;
      return json(alive ? 200 : 503, { alive, phase: now });
    },

    /** 200 when it can work; else 503 and, for each part that is not ready, the code of its failure;
     * of sending, since when it has stopped and why. */
    async readiness(): Promise<Response> {
      const notReady: Record<string, string> = {};
      const now = phase();
      if (now !== 'running') notReady['worker'] = now;
      const failures = Object.entries(checks).map(([part, check]) =>
        check().catch((error: unknown) => (notReady[part] = codeOf(error))),
      );
      await Promise.all(failures);
      const stopped = sendingStopped();
      if (stopped) notReady['sending'] = stopped.code;
      const ready = Object.keys(notReady).length === 0;
      const why = stopped && {
        sendingStopped: {
          since: stopped.since,
          code: stopped.code,
          meaning: errorEntry(stopped.code).meaning,
        },
      };
      return json(ready ? 200 : 503, ready ? { ready } : { ready, notReady, ...why });
    },
  };
}
