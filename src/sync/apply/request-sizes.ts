// The sizes of requests that this process goes by: learned from every answer, kept in the state, and taken over from there
// when another process has learned more.
import type { Logger } from '../../process/logger.js';
import type { State } from '../../state/database.js';
import { listRequestSizes, saveRequestSize } from '../../state/request-sizes.js';
import { codeOf } from '../../errors/errors.js';
import { FIRST_SIZE, learn, type RequestSize, type SentRequest } from './request-size.js';

interface RequestSizesDeps {
  state: Pick<State, 'db'>;
  log: Logger;
  /** Milliseconds that an answer may take. */
  requestTimeoutMs: number;
  /** Milliseconds since 1970. */
  now?: (() => number) | undefined;
}

/** Sizes that other processes have learned are read this often, while something is written. */
const READ_EVERY_MS = 5000;

export type RequestSizes = ReturnType<typeof createRequestSizes>;

export function createRequestSizes({ state, log, requestTimeoutMs, now = Date.now }: RequestSizesDeps) {
  const sizes = new Map<string, RequestSize>();
  let readAt = -Infinity;

  return {
    /** Reads the sizes that other processes have learned. Throws what the state throws. */
    async refresh(): Promise<void> {
      if (Math.abs(now() - readAt) < READ_EVERY_MS) return;
      readAt = now();
      for (const { type, ...size } of await listRequestSizes(state.db))
        if (size.changedAt > (sizes.get(type) ?? FIRST_SIZE).changedAt) sizes.set(type, size);
    },

    of: (type: string): RequestSize => sizes.get(type) ?? FIRST_SIZE,

    /** Learns from one request. What cannot be kept in the state is still gone by here. */
    async learn(type: string, request: SentRequest): Promise<void> {
      const known = sizes.get(type) ?? FIRST_SIZE;
      const timeoutSeconds = requestTimeoutMs / 1000;
      const size = learn(known, request, { timeoutSeconds, now: new Date(now()) });
      sizes.set(type, size);
      if (size.changedAt.getTime() === known.changedAt.getTime()) return;
      const { objects, reason } = size;
      if (objects !== known.objects)
        log.info(
          { type, objects, before: known.objects, reason },
          'objects in one request: another number from now on',
        );
      try {
        await saveRequestSize(state.db, { type, ...size }, known.changedAt);
      } catch (error) {
        log.warn({ type, code: codeOf(error) }, 'the size of requests could not be noted');
      }
    },
  };
}
