// The two questions of an orchestrator. Liveness: is the process worth keeping, or should it be restarted? A database
// that is down does not change that. Readiness: can it work now?
import { codeOf } from '../errors.js';
import { json, type HttpAnswer } from './http-server.js';

export interface HealthDeps {
  /** What the process is doing. */
  phase: () => 'starting' | 'running' | 'stopping' | 'ended';
  /** Each resolves when that part answers, and has a time limit of its own. */
  checks: Readonly<Record<string, () => Promise<unknown>>>;
}

export function createHealth({ phase, checks }: HealthDeps) {
  return {
    /** 200 while the process works. The answer itself shows that its event loop is not blocked. */
    liveness(): HttpAnswer {
      const now = phase();
      return json(now === 'ended' ? 503 : 200, { alive: now !== 'ended', phase: now });
    },

    /** 200 when it can work; else 503 and, for each part that is not ready, the code of its failure. */
    async readiness(): Promise<HttpAnswer> {
      const notReady: Record<string, string> = {};
      const now = phase();
      if (now !== 'running') notReady['worker'] = now;
      const failures = Object.entries(checks).map(([part, check]) =>
        check().catch((error: unknown) => (notReady[part] = codeOf(error))),
      );
      await Promise.all(failures);
      const ready = Object.keys(notReady).length === 0;
      return json(ready ? 200 : 503, ready ? { ready } : { ready, notReady });
    },
  };
}
