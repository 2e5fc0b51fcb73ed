// Adds what this process sent to the state from time to time, and once more when it ends.
import { codeOf } from '../../errors/errors.js';
import { repeat } from '../../process/lifecycle.js';
import type { Logger } from '../../process/logger.js';
import type { RequestCounter } from '../../process/request-counter.js';
import type { State } from '../../state/database.js';
import { noteRequests } from '../../state/requests.js';

const NOTE_EVERY_MS = 5000;

interface RequestNotesDeps {
  counter: RequestCounter;
  /** Undefined: the state is not open, so nothing is noted yet. */
  state: () => State | undefined;
  log: Logger;
}

export function noteRequestsPeriodically({ counter, state, log }: RequestNotesDeps) {
  const closing = new AbortController();

  async function note(): Promise<void> {
    const opened = state();
    const counted = opened && counter.take();
    if (!opened || !counted) return;
    await noteRequests(opened.db, counted).catch((error: unknown) => {
      counter.putBack(counted);
      throw error;
    });
  }

  const notes = repeat(note, {
    everyMs: NOTE_EVERY_MS,
    firstAfterMs: NOTE_EVERY_MS,
    signal: closing.signal,
    onError: (error) => log.debug({ code: codeOf(error) }, 'requests not noted in the state; it is retried'),
  });
  return {
    async close(): Promise<void> {
      closing.abort();
      await notes.ended;
      await note();
    },
  };
}
