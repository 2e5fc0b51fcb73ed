// Two questions an orchestrator asks. Alive: is there any use in going on, or should the process be started again?
// A database that is away does not change that. Ready: can it work just now?
import { codeOf } from '../errors.js';
import { json, type HttpAnswer } from './http-server.js';

export interface HealthDeps {
  /** What the process is doing. */
  phase: () => 'starting' | 'running' | 'stopping' | 'ended';
  /** Each resolves when that part answers, within a time of its own. */
  checks: Readonly<Record<string, () => Promise<unknown>>>;
}

export function createHealth({ phase, checks }: HealthDeps) {
  return {
    /** 200 while the process works. That it answers at all says that its event loop turns. */
    alive(): HttpAnswer {
      const now = phase();
      return json(now === 'ended' ? 503 : 200, { alive: now !== 'ended', phase: now });
    },

    /** 200 when it can work; else 503, and which part is not ready by the code of its failure. */
    async ready(): Promise<HttpAnswer> {
      const notReady: Record<string, string> = {};
      const now = phase();
      if (now !== 'running') notReady['worker'] = now;
      await Promise.all(
        Object.entries(checks).map(async ([part, check]) => {
          try {
            await check();
          } catch (error) {
            notReady[part] = codeOf(error);
          }
        }),
      );
      const ready = Object.keys(notReady).length === 0;
      return json(ready ? 200 : 503, ready ? { ready } : { ready, notReady });
    },
  };
}
