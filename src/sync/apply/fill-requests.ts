// Fills requests. Batches that are written at the same time put their objects into one line for each type and lane. A request takes
// its slot of the quota, and then from the head of the line what fits: until then the line grows, and what the last answers have
// taught counts. Where the size is fixed, each batch has its own line; so has one of which a request failed, which is narrowed down to
// the objects that the service fails on.
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
import { sendRequest, type Part, type Written } from './send-request.js';

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
export function openLines({ destination, log, clock = () => performance.now() }: RequestDeps): RequestFiller {
  const sizes = createRequestSizes(log, destination.requestTimeoutMs, clock);
  return createRequestFiller({ destination, sizes, clock });
}

export function createRequestFiller(deps: { destination: Puts; sizes: RequestSizes; clock: () => number }) {
  const { destination, sizes, clock } = deps;
  const lines = new Map<string, Line>();
  let waitMs = 0;

  function ownLine({ type, batchSize }: Stream, lane: Lane, narrowing?: Narrowing) {
    const fixed = batchSize === 'auto' ? undefined : batchSize;
    return new Line(destination, { type, lane, sizes, clock, fixed, narrowing });
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

/** The objects that one batch has to write. */
export interface Order extends Pick<Part, 'goodUntil' | 'claim'> {
  objects: readonly PutObject[];
  attempt: BatchAttempt;
  /** Its objects were not sent in time, and were read again: it goes first. */
  isAgain: boolean;
  /** Hears of each result as soon as it is known. */
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

interface Waiting extends Order, Pick<Part, 'place' | 'written'> {
  signal: AbortSignal | undefined;
  rest: PutObject[];
  /** Requests under way with objects of this order. */
  underWay: number;
  end(): void;
}

type PartOf = Part & { order: Waiting };

export type Puts = Pick<Destination, 'openPut'>;

interface LineOptions {
  type: string;
  lane: Lane;
  sizes: RequestSizes;
  clock: () => number;
  /** Objects in one request; undefined: what was learned. */
  fixed: number | undefined;
  /** For the line of a single batch. */
  narrowing: Narrowing | undefined;
}

/** Objects in a request of the lane of changes, at most: it is answered soon. */
const MOST_OF_A_CHANGE = 100;
/** The bodies that servers take by default: nginx refuses more than 1 MB. One object alone may be larger. */
const MOST_BYTES = 1_000_000;

/** A line of objects before the quota. */
class Line {
  private readonly destination: Puts;
  private readonly options: LineOptions;
  private readonly waiting: Waiting[] = [];
  /** A request waits for its slot: what comes meanwhile may go with it. */
  private isAsking = false;

  constructor(destination: Puts, options: LineOptions) {
    this.destination = destination;
    this.options = options;
  }

  /** Writes the objects of an order, and notes in `written` what becomes of them. */
  put(order: Order, written: Written, signal: AbortSignal | undefined): Promise<void> {
    const rest = this.options.narrowing?.inOrder(order.objects) ?? [...order.objects];
    return new Promise((end) => {
      const waiting: Waiting = { ...order, written, signal, place: here(), rest, underWay: 0, end };
      if (order.isAgain) this.waiting.unshift(waiting);
      else this.waiting.push(waiting);
      this.ask();
    });
  }

  private ask(): void {
    const { narrowing } = this.options;
    const [first] = this.waiting;
    if (this.isAsking || !first || (narrowing && first.underWay >= narrowing.atOnce())) return;
    this.isAsking = true;
    void at(first.place, () => this.sendNext(first.signal));
  }

  /** Sends one request: its slot, what fits into it by then, its answer, and what the answer says of each object. */
  private async sendNext(signal: AbortSignal | undefined): Promise<void> {
    const { type, lane, clock, sizes, fixed, narrowing } = this.options;
    const open = () => this.destination.openPut({ lane, signal });
    const put = open();
    const failure = await put.takeSlot().catch((error: unknown) => ({ error }));
    this.isAsking = false;
    if (failure) {
      put.end();
      for (const order of this.waiting.splice(0)) this.withdraw(order, failure);
      return;
    }
    const parts = this.takeParts();
    this.ask();
    const answer = await sendRequest(parts, put, {
      open,
      clock,
      learn: (request) => fixed === undefined && sizes.learn(type, request),
      isNarrowed: () => narrowing?.isNarrowed() === true,
    });
    this.noteResults(parts, answer);
    this.ask();
  }

  /** Takes from the head of the line as many objects as fit into a request. */
  private takeParts(): PartOf[] {
    const { type, lane, sizes, clock, fixed, narrowing } = this.options;
    const learned = sizes.of(type).objects;
    const most = fixed ?? (lane === 'incremental' ? Math.min(MOST_OF_A_CHANGE, learned) : learned);
    const parts: PartOf[] = [];
    let count = 0;
    let bytes = 0;
    for (let [order] = this.waiting; order; [order] = this.waiting) {
      if (order.goodUntil < clock()) {
        for (const { extId } of order.rest) order.written.unsent.add(extId);
        this.withdraw(order);
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
        const { place, written, goodUntil, claim } = order;
        parts.push({ order, objects: taken, place, written, goodUntil, claim });
      }
      order.rest = order.rest.slice(taken.length);
      if (order.rest.length > 0) break;
      this.waiting.shift();
    }
    return parts;
  }

  /** Notes for each batch the results of its objects, and ends those of which nothing more is sent. */
  private noteResults(
    parts: readonly PartOf[],
    { results, failure }: { results: ReadonlyMap<string, PutResult>; failure?: { error: unknown } },
  ): void {
    const { narrowing } = this.options;
    const isAnyAccepted = [...results.values()].some(({ accepted }) => accepted);
    if ([...results.values()].some((result) => result.accepted || (result.status ?? 0) < 500))
      narrowing?.answered();
    for (const { order, objects } of parts) {
      const { written } = order;
      for (const { extId } of objects) {
        const result = results.get(extId);
        if (!result) continue;
        written.results.set(extId, result);
        order.answered?.(extId, result);
      }
      if (isAnyAccepted) written.isAnyAccepted = true;
      order.underWay--;
      if (written.failure || (failure && !this.sendAgain(order, objects, failure)))
        this.withdraw(order, failure);
      else if (order.underWay === 0 && order.rest.length === 0) this.withdraw(order);
    }
  }

  /** Puts what of a failed request has no answer back into the line, in smaller parts. False: nothing more is sent. */
  private sendAgain(order: Waiting, objects: readonly PutObject[], { error }: { error: unknown }): boolean {
    const { narrowing } = this.options;
    if (!narrowing || !isSpoiled(error)) return false;
    const { results, unsent } = order.written;
    const unanswered = objects.filter(({ extId }) => !results.has(extId) && !unsent.has(extId));
    const again = narrowing.failed(unanswered, error, order.goodUntil < this.options.clock());
    if (!again) return false;
    for (const object of again) order.rest.push(object);
    if (again.length > 0 && !this.waiting.includes(order)) this.waiting.push(order);
    return true;
  }

  /** Nothing more of it is sent. */
  private withdraw(order: Waiting, failure?: { error: unknown }): void {
    const { narrowing } = this.options;
    order.written.failure ??= narrowing ? narrowing.failure(failure) : failure;
    order.rest = [];
    const position = this.waiting.indexOf(order);
    if (position >= 0) this.waiting.splice(position, 1);
    if (order.underWay > 0) return;
    for (const [{ extId }, error] of narrowing?.culprits() ?? []) order.written.culprits.set(extId, error);
    if (isOneLeft(order))
      order.written.failure = { error: serviceFailsOnObject(order.written.failure?.error, true) };
    order.end();
  }
}

/** A request failed for one object alone, when all others of its batch were answered. */
function isOneLeft({ objects, written: { results, unsent, failure } }: Waiting): boolean {
  return isSpoiled(failure?.error) && results.size > 0 && objects.length - results.size - unsent.size === 1;
}
