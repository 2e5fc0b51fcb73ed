// When nothing can succeed, nothing is tried: the same kind of failure several times running stops the sending of
// this process. Wrong credentials at two in the morning cost a dozen requests, not one for every batch. It says so
// once, looks at widening gaps whether things are well again, and then goes on by itself.
import { setTimeout as sleep } from 'node:timers/promises';
import { errorEntry } from '../error-catalogue.js';
import { codeOf } from '../errors.js';
import type { Logger } from '../logger.js';

const SECOND = 1000;
const MINUTE = 60 * SECOND;

export interface BreakerOptions {
  log: Logger;
  /** Resolves when sending makes sense again. */
  probe: (signal: AbortSignal) => Promise<unknown>;
  /** Called when sending stops, and when it may go on. */
  onOpen: () => void;
  onClose: () => void;
  /** Failures running that open it. */
  threshold?: number;
  firstGapMs?: number;
  longestGapMs?: number;
}

export type Breaker = ReturnType<typeof createBreaker>;

export function createBreaker(options: BreakerOptions) {
  const { log, probe, onOpen, onClose } = options;
  const { threshold = 5, firstGapMs = 5 * SECOND, longestGapMs = 5 * MINUTE } = options;
  const stopped = new AbortController();
  let running = 0;
  let open = false;
  let gapMs = firstGapMs;
  /** Said since something last succeeded. */
  let said = false;

  async function waitUntilWell(): Promise<void> {
    while (!stopped.signal.aborted) {
      await sleep(gapMs, undefined, { signal: stopped.signal }).catch(() => undefined); // stop() ends it
      if (stopped.signal.aborted) return;
      gapMs = Math.min(gapMs * 2, longestGapMs);
      try {
        await probe(stopped.signal);
        break;
      } catch (error) {
        log.debug({ code: codeOf(error), nextProbeSeconds: gapMs / SECOND }, 'still not well');
      }
    }
    if (stopped.signal.aborted) return;
    open = false;
    running = 0;
    log.info('sending goes on');
    onClose();
  }

  return {
    isOpen: () => open,

    /** A batch was applied: everything is well. */
    succeeded(): void {
      running = 0;
      gapMs = firstGapMs;
      said = false;
    },

    /** Tells of a failure. Returns whether the batch should wait without losing an attempt. */
    failed(error: unknown): boolean {
      const code = codeOf(error);
      const { systemic } = errorEntry(code);
      if (!systemic || stopped.signal.aborted) return false;
      running++;
      if (!open && running >= threshold) {
        open = true;
        const facts = { code, firstProbeSeconds: gapMs / SECOND };
        if (said) log.debug(facts, 'sending stopped again');
        else
          log.error(
            facts,
            'sending stopped: it failed several times running; it goes on by itself when things are well',
          );
        said = true;
        onOpen();
        void waitUntilWell();
      }
      return systemic === 'wait';
    },

    /** Probes no more. */
    stop(): void {
      stopped.abort();
    },
  };
}
