// Full requests. Batches that are written at the same time put their objects into one line for each type and lane, and a
// request takes from the head of the line what fits. Where the size is fixed, each batch has its own line; so has one of
// which a request failed, which is narrowed down to the objects that the service fails on.
import type { Context } from '../../destination/client.js';
import type { Destination } from '../../destination/destination.js';
import type { Lane } from '../../destination/quota/limiter.js';
import type { Stream } from '../../streams/stream.js';
import type { Logger } from '../../process/logger.js';
import { createNarrowing, type Narrowing } from './narrow-failures.js';
import { createLine, nothingWritten, type Order, type Puts, type Written } from './request-line.js';
import { createRequestSizes, type RequestSizes } from './request-size.js';

interface RequestDeps {
  destination: Puts & Pick<Destination, 'requestTimeoutMs'>;
  log: Logger;
  /** Milliseconds since any moment, never going back. */
  clock?: (() => number) | undefined;
}

/** The mean time between two slots of a batch while three batches take turns at a quota of 20 a second. */
const TURN_MS = 150;
/** The weight of the latest batch in what is known of their waiting. */
const OF_THE_LATEST = 0.2;

export type RequestFiller = ReturnType<typeof createRequestFiller>;

/** The lines of one process. */
export function openRequests({
  destination,
  log,
  clock = () => performance.now(),
}: RequestDeps): RequestFiller {
  const sizes = createRequestSizes(log, destination.requestTimeoutMs, clock);
  return createRequestFiller({ destination, sizes, clock });
}

export function createRequestFiller(deps: { destination: Puts; sizes: RequestSizes; clock: () => number }) {
  const { destination, sizes, clock } = deps;
  const lines = new Map<string, ReturnType<typeof createLine>>();
  let waitMs = 0;

  function ownLine({ type, batchSize }: Stream, lane: Lane, narrowing?: Narrowing) {
    const fixed = batchSize === 'auto' ? undefined : batchSize;
    return createLine(destination, { type, lane, sizes, clock, fixed, ...(narrowing && { narrowing }) });
  }

  /** A batch that failed has a line of its own: no other batch fails with it a second time. */
  function lineOf(stream: Stream, lane: Lane, { attempt }: Order) {
    const { type, batchSize } = stream;
    if (attempt.earlier.count > 0) return ownLine(stream, lane, createNarrowing(attempt));
    if (batchSize !== 'auto') return ownLine(stream, lane);
    const name = JSON.stringify([type, lane]);
    const line = lines.get(name) ?? ownLine(stream, lane);
    lines.set(name, line);
    return line;
  }

  return {
    /** How long batches have waited lately for their slots, in milliseconds, beyond the turns that each request takes. */
    waitMs: () => waitMs,

    /** Writes the objects of one batch. Ends when none of its requests is under way any more; a failure is in what it returns. */
    async put(
      stream: Stream,
      { lane, signal }: Context,
      { suspects: suspected, ...order }: Order & { suspects: ReadonlySet<string> },
    ): Promise<Written> {
      const written = nothingWritten();
      const suspects = order.objects.filter(({ extId }) => suspected.has(extId));
      const objects = order.objects.filter(({ extId }) => !suspected.has(extId));
      const askedAt = clock();
      if (objects.length > 0) await lineOf(stream, lane, order).put({ ...order, objects }, written, signal);
      // Objects whose reading has grown old have waited until now, and for nothing.
      const { slots, lastSlotAt, unsent } = written;
      const waited = unsent.size > 0 ? clock() - askedAt : lastSlotAt - askedAt - (slots - 1) * TURN_MS;
      if (slots + unsent.size > 0) waitMs += (waited - waitMs) * OF_THE_LATEST;
      if (suspects.length === 0 || written.failure) return written;
      const line = ownLine(stream, lane, createNarrowing(order.attempt, true));
      await line.put({ ...order, objects: suspects }, written, signal);
      return written;
    },
  };
}
