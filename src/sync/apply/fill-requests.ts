// Combines objects of several batches in one request, because the quota counts requests. Batches of one type and lane
// share a line of objects. A request waits for its slot, and then takes as many objects from the line as fit. Batches
// of a fixed size, and batches that failed before, have a line of their own.
import type { Context } from '../../destination/client.js';
import type { Destination, PutObject, PutResult } from '../../destination/destination.js';
import { isSpoiled } from '../../destination/http-errors.js';
import type { Lane } from '../../destination/quota/limiter.js';
import type { Logger } from '../../process/logger.js';
import { at, here } from '../../process/tracing.js';
import type { Stream } from '../../streams/stream.js';
import {
  createNarrowing,
  serviceFailsOnObject,
  type BatchAttempt,
  type Narrowing,
} from './narrow-failures.js';
import { createRequestSizes, type RequestSizes } from './request-size.js';
import { sendRequest, type InLine, type Part, type Written } from './send-request.js';

interface RequestDeps {
  destination: Pick<Destination, 'openPut' | 'requestTimeoutMs'>;
  log: Logger;
  /** Returns milliseconds of a monotonic clock. */
  clock?: (() => number) | undefined;
}

/** Milliseconds between two slots of a batch, if three batches share a quota of 20 requests per second. */
const TURN_MS = 150;
/** Weight of the latest batch in the average waiting time. */
const OF_THE_LATEST = 0.2;

export type RequestFiller = ReturnType<typeof createRequestFiller>;

/** Opens the lines in which objects wait to be sent. All batches of this process share these lines. */
export function openLines({ destination, log, clock = () => performance.now() }: RequestDeps): RequestFiller {
  const sizes = createRequestSizes(log, destination.requestTimeoutMs, clock);
  return createRequestFiller({ destination, sizes, clock });
}

export function createRequestFiller(deps: LineDeps) {
  const { clock } = deps;
  const lines = new Map<string, Line>();
  let waitMs = 0;

  const ownLine = ({ type, batchSize }: Stream, lane: Lane, narrowing?: Narrowing) =>
    createLine(deps, { type, lane, fixed: batchSize === 'auto' ? undefined : batchSize, narrowing });

  /** After a failure, a batch gets a line of its own, so that it does not fail the requests of other batches. */
  function lineOf(stream: Stream, lane: Lane, { attempt }: Order) {
    if (attempt.earlier.count > 0) return ownLine(stream, lane, createNarrowing(attempt));
    if (stream.batchSize !== 'auto') return ownLine(stream, lane);
    const name = JSON.stringify([stream.type, lane]);
    const line = lines.get(name) ?? ownLine(stream, lane);
    lines.set(name, line);
    return line;
  }

  return {
    /** Average milliseconds that recent batches waited for slots, beyond the usual time between two slots. */
    waitMs: () => waitMs,

    /** Writes the objects of one batch. Resolves when all its requests are answered. Errors are in the result. */
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
      // If objects were not sent in time, the batch has waited all the time.
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

/** Objects that one batch wants to write. */
export interface Order extends Pick<InLine, 'goodUntil' | 'claim'> {
  objects: readonly PutObject[];
  attempt: BatchAttempt;
  /** True if the objects were not sent in time before. Then they go to the front of the line. */
  isAgain: boolean;
  /** Called with each result as soon as it arrives. */
  answered?: ((extId: string, result: PutResult) => void) | undefined;
}

export const nothingWritten = (): Written => ({
  results: new Map(),
  sent: new Set(),
  culprits: new Map(),
  unsent: new Set(),
  isAnyAccepted: false,
  slots: 0,
  lastSlotAt: 0,
  failure: undefined,
});

interface Waiting extends Order, InLine {
  signal: AbortSignal | undefined;
  rest: PutObject[];
  /** Number of unanswered requests with objects of this order. */
  underWay: number;
  end(): void;
}

interface LineDeps {
  destination: Pick<Destination, 'openPut'>;
  sizes: RequestSizes;
  clock: () => number;
}

interface LineOptions {
  type: string;
  lane: Lane;
  /** Number of objects in one request. If undefined, the size is learned from the service's answers. */
  fixed: number | undefined;
  /**
   * Divides a batch after a failure, to find the failing object. Undefined if several batches share one queue of
   * objects to send.
   */
  narrowing: Narrowing | undefined;
}

/** Maximum number of objects in a request for recent changes, so that the answer comes soon. */
const MOST_OF_A_CHANGE = 100;
/** Maximum size of a request in bytes. By default, nginx rejects more than 1 MB. A single object may be larger. */
const MOST_BYTES = 1_000_000;

type Failure = Written['failure'];
type Line = ReturnType<typeof createLine>;

/** Creates a line: objects of one type and lane that wait to be sent. */
function createLine({ destination, sizes, clock }: LineDeps, { type, lane, fixed, narrowing }: LineOptions) {
  const line: Waiting[] = [];
  /** True while a request waits for its slot. Objects that are added meanwhile can be sent with it. */
  let isAsking = false;

  function ask(): void {
    const [first] = line;
    if (isAsking || !first || (narrowing && first.underWay >= narrowing.atOnce())) return;
    isAsking = true;
    void at(first.place, () => sendNext(first.signal));
  }

  /** Sends one request: waits for a slot, takes objects from the line, and notes the results. */
  async function sendNext(signal: AbortSignal | undefined): Promise<void> {
    const open = () => destination.openPut({ lane, signal });
    const put = open();
    const failure = await put.takeSlot().catch((error: unknown) => ({ error }));
    isAsking = false;
    if (failure) {
      put.end();
      for (const order of line.splice(0)) withdraw(order, failure);
      return;
    }
    const parts = takeParts();
    ask();
    const answer = await sendRequest(parts, put, {
      open,
      clock,
      learn: (request) => fixed === undefined && sizes.learn(type, request),
      isNarrowed: () => narrowing?.isNarrowed() === true,
    });
    noteResults(parts, answer);
    ask();
  }

  /** Takes as many objects from the front of the line as fit in a request. */
  function takeParts(): Part<Waiting>[] {
    const learned = sizes.of(type).objects;
    const most = fixed ?? (lane === 'incremental' ? Math.min(MOST_OF_A_CHANGE, learned) : learned);
    const parts: Part<Waiting>[] = [];
    let count = 0;
    let bytes = 0;
    for (let [order] = line; order; [order] = line) {
      if (order.goodUntil < clock()) {
        for (const { extId } of order.rest) order.written.unsent.add(extId);
        withdraw(order);
        continue;
      }
      const taken: PutObject[] = [];
      let limit = most;
      for (const object of order.rest) {
        if (fixed === undefined) bytes += Buffer.byteLength(JSON.stringify(object));
        if (narrowing)
          limit = Math.min(limit, narrowing.limitOf(object, Math.min(most, order.objects.length)));
        if (count >= limit || (count > 0 && bytes > MOST_BYTES)) break;
        taken.push(object);
        count++;
      }
      if (taken.length > 0) {
        order.underWay++;
        order.written.slots++;
        order.written.lastSlotAt = clock();
        parts.push({ order, objects: taken });
      }
      order.rest = order.rest.slice(taken.length);
      if (order.rest.length > 0) break;
      line.shift();
    }
    return parts;
  }

  /** Notes the results of a request for each batch, and ends batches that have nothing more to send. */
  function noteResults(
    parts: readonly Part<Waiting>[],
    { results, failure }: { results: ReadonlyMap<string, PutResult>; failure?: Failure },
  ): void {
    const isAnyAccepted = [...results.values()].some(({ accepted }) => accepted);
    const isAnswered = [...results.values()].some((result) => result.accepted || (result.status ?? 0) < 500);
    if (isAnswered) narrowing?.answered();
    for (const { order, objects } of parts) {
      if (isAnswered) order.attempt.isAnswered = true;
      const { written } = order;
      for (const { extId } of objects) {
        const result = results.get(extId);
        if (!result) continue;
        written.results.set(extId, result);
        order.answered?.(extId, result);
      }
      if (isAnyAccepted) written.isAnyAccepted = true;
      order.underWay--;
      if (written.failure || (failure && !sendAgain(order, objects, failure.error))) withdraw(order, failure);
      else if (order.underWay === 0 && order.rest.length === 0) withdraw(order);
    }
  }

  /** Puts unanswered objects of a failed request back into the line. Returns false if the batch must end. */
  function sendAgain(order: Waiting, objects: readonly PutObject[], error: unknown): boolean {
    if (!narrowing || !isSpoiled(error)) return false;
    const { results, unsent } = order.written;
    const unanswered = objects.filter(({ extId }) => !results.has(extId) && !unsent.has(extId));
    const again = narrowing.failed(unanswered, error, order.goodUntil < clock());
    if (!again) return false;
    order.rest = [...order.rest, ...again];
    if (again.length > 0 && !line.includes(order)) line.push(order);
    return true;
  }

  /** Removes a batch's unsent objects from the line. Ends the batch when all its requests are answered. */
  function withdraw(order: Waiting, failure?: Failure): void {
    const { written } = order;
    written.failure ??= narrowing ? narrowing.failure(failure) : failure;
    order.rest = [];
    const position = line.indexOf(order);
    if (position >= 0) line.splice(position, 1);
    if (order.underWay > 0) return;
    for (const [{ extId }, error] of narrowing?.culprits() ?? []) written.culprits.set(extId, error);
    if (order.attempt.isAnswered && isSpoiled(written.failure?.error))
      written.failure = { error: serviceFailsOnObject(written.failure?.error, isOneLeft(order)) };
    order.end();
  }

  return {
    /** Adds the objects of a batch to the line. Resolves when their results are in `written`. */
    put(order: Order, written: Written, signal: AbortSignal | undefined): Promise<void> {
      const rest = narrowing?.inOrder(order.objects) ?? [...order.objects];
      return new Promise((end) => {
        const waiting: Waiting = { ...order, written, signal, place: here(), rest, underWay: 0, end };
        if (order.isAgain) line.unshift(waiting);
        else line.push(waiting);
        ask();
      });
    },
  };
}

/** Returns true if exactly one object of the order was not answered. */
function isOneLeft({ objects, written: { results, unsent } }: Waiting): boolean {
  return objects.length - results.size - unsent.size === 1;
}
