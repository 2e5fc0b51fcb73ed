// Full requests. Batches that are written at the same time put their objects into one line for each type and lane, and a
// request takes from the head of the line what fits. What it takes is decided with the slot of the quota in hand: until
// then the line grows, and what the last answers have taught counts. Where the size is fixed, each batch has its own line;
// so has one of which a request failed, which is narrowed down to the objects that the service fails on.
import type { Context } from '../../destination/client.js';
import type { Destination, PutObject, PutResult } from '../../destination/destination.js';
import type { Lane } from '../../destination/quota/limiter.js';
import { codeOf, SlotsyncError } from '../../errors.js';
import type { Stream } from '../../streams/stream.js';
import { at, here, linkTo, noteInSpan, type Place } from '../../tracing.js';
import type { SyncDeps } from '../sync-deps.js';
import {
  createNarrowing,
  failsOnObject,
  isSpoiled,
  type Attempt,
  type Narrowing,
} from './narrow-failures.js';
import { putHalving } from './put-halving.js';
import { mostBytes, type SentRequest } from './request-size.js';
import { createRequestSizes, type RequestSizes } from './request-sizes.js';

/** The objects that one batch has to write. */
export interface Order {
  objects: readonly PutObject[];
  /** By external id; filled as answers arrive, so that what is known survives an error. */
  results: Map<string, PutResult>;
  /** External ids of objects that the service failed on in an earlier run: they are sent alone, after the others. */
  suspects: ReadonlySet<string>;
  attempt: Attempt;
  /** The service fails on this object; it may have carried the write out all the same. */
  noteCulprit(object: PutObject, error: unknown): void;
  /** Milliseconds of `clock`: what is not sent by then was decided by a reading that is too old. */
  goodUntil: number;
  /** What was not sent in time, and was read again: it goes first. */
  isAgain: boolean;
  /** Called right before each request with objects of this order. What it throws keeps them out of the request. */
  require(): Promise<void>;
  /** These were sent, and nothing final is known of them yet. */
  noteSent(objects: readonly PutObject[]): void;
  /** An object of the same request was accepted, of this order or of another. */
  noteAccepted(): void;
}

interface Waiting extends Order {
  signal: AbortSignal | undefined;
  rest: PutObject[];
  /** Not sent in time. */
  stale: PutObject[];
  /** Where in the trace it was put into the line. */
  place: Place;
  /** Requests under way with objects of this order. */
  underWay: number;
  failure: { error: unknown } | undefined;
  end(): void;
}

/** One order's objects in a request. */
interface Part {
  order: Waiting;
  objects: readonly PutObject[];
}

type Destinations = Pick<Destination, 'putObjects'>;

interface RequestDeps extends Pick<SyncDeps, 'state' | 'log' | 'now'> {
  destination: Destinations & Pick<Destination, 'requestTimeoutMs'>;
  clock?: (() => number) | undefined;
}

interface LineOptions {
  type: string;
  lane: Lane;
  sizes: RequestSizes;
  clock: () => number;
  /** Objects in one request; undefined: what was learned. */
  fixed: number | undefined;
  /** Of the one batch whose line it is. */
  narrowing?: Narrowing;
}

/** Failures of a write that the service cannot have carried out. */
const NOT_CARRIED_OUT = new Set([
  'claim_lost',
  'limiter_closed',
  'quota_unavailable',
  'refused',
  'run_stopped',
  'service_unreachable',
  'throttled',
  'unauthorized',
]);
/** Failures of a write that may come of how much there was in it. */
const FAILED = new Set(['answer_lost', 'gateway_answered', 'service_failed']);
/** A gateway that waited no longer. */
const GATEWAY_TIMEOUTS: readonly unknown[] = [408, 504];
/** Objects in a request of the lane of changes, at most: it is answered soon. */
const MOST_OF_A_CHANGE = 100;
/** Nothing in the line is to be sent any more, so the slot is given back. */
const NOTHING = new Error('nothing to send');

export type RequestFiller = ReturnType<typeof createRequestFiller>;

/** The lines of one process. */
export function openRequests(deps: RequestDeps): RequestFiller {
  const { state, log, destination, clock, now } = deps;
  const { requestTimeoutMs } = destination;
  return createRequestFiller({
    destination,
    clock,
    sizes: createRequestSizes({ state, log, requestTimeoutMs, now }),
  });
}

export function createRequestFiller(deps: {
  destination: Destinations;
  sizes: RequestSizes;
  /** Milliseconds since any moment, never going back. */
  clock?: (() => number) | undefined;
}) {
  const { destination, sizes, clock = () => performance.now() } = deps;
  const lines = new Map<string, ReturnType<typeof createLine>>();

  function ownLine({ type, batchSize }: Stream, lane: Lane, narrowing?: Narrowing) {
    const fixed = batchSize === 'auto' ? undefined : batchSize;
    return createLine(destination, { type, lane, sizes, clock, fixed, ...(narrowing && { narrowing }) });
  }

  /** What fails goes alone from then on: no other batch fails with it a second time. */
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
    /**
     * Writes the objects of one batch; returns those that were not sent before their reading was too old. Throws the first
     * failure, when none of its requests is under way any more: some objects may have their results all the same.
     */
    async put(stream: Stream, { lane, signal }: Context, order: Order): Promise<readonly PutObject[]> {
      if (stream.batchSize === 'auto') await sizes.refresh();
      const suspects = order.objects.filter(({ extId }) => order.suspects.has(extId));
      if (suspects.length === 0) return lineOf(stream, lane, order).put(order, signal);
      const objects = order.objects.filter((object) => !suspects.includes(object));
      const others = { ...order, objects };
      const unsent = objects.length > 0 ? await lineOf(stream, lane, order).put(others, signal) : [];
      const line = ownLine(stream, lane, createNarrowing(order.attempt, true));
      return [...unsent, ...(await line.put({ ...order, objects: suspects }, signal))];
    },
  };
}

function createLine(destination: Destinations, options: LineOptions) {
  const { type, lane, sizes, clock, fixed, narrowing } = options;
  const line: Waiting[] = [];
  /** A request waits for its slot: what comes meanwhile may go with it. */
  let isAsking = false;

  function ask(): void {
    const [first] = line;
    if (isAsking || !first || (narrowing && first.underWay >= narrowing.atOnce())) return;
    isAsking = true;
    void at(first.place, () => send(first.signal));
  }

  /** Nothing more of it is sent. */
  function withdraw(order: Waiting, failure?: { error: unknown }): void {
    order.failure ??= narrowing ? narrowing.failure(failure) : failure;
    order.rest = [];
    const at = line.indexOf(order);
    if (at >= 0) line.splice(at, 1);
    if (order.underWay === 0) order.end();
  }

  /** What fits into one request, from the head of the line. */
  function takeParts(weigh: (object: PutObject) => number): Part[] {
    const size = sizes.of(type);
    const most = fixed ?? (lane === 'incremental' ? Math.min(MOST_OF_A_CHANGE, size.objects) : size.objects);
    const parts: Part[] = [];
    let count = 0;
    let bytes = 0;
    for (let [order] = line; order; [order] = line) {
      if (order.goodUntil < clock()) {
        order.stale.push(...order.rest);
        withdraw(order);
        continue;
      }
      const taken: PutObject[] = [];
      let limit = most;
      for (const object of order.rest) {
        bytes += weigh(object);
        if (narrowing)
          limit = Math.min(limit, narrowing.limitOf(object, Math.min(most, order.objects.length)));
        if (count >= limit || (count > 0 && fixed === undefined && bytes > mostBytes(size))) break;
        taken.push(object);
        count++;
      }
      if (taken.length > 0) {
        order.underWay++;
        parts.push({ order, objects: taken });
      }
      order.rest = order.rest.slice(taken.length);
      if (order.rest.length > 0) break;
      line.shift();
    }
    return parts;
  }

  /** Keeps those of the objects out of a request that their batch may not write any more, or would by an old reading. */
  async function requireParts(parts: readonly Part[], objects: PutObject[]): Promise<void> {
    for (const { order, objects: own } of parts) {
      const chosen = new Set(own);
      if (!objects.some((object) => chosen.has(object))) continue;
      try {
        if (order.failure) throw order.failure.error;
        if (order.goodUntil >= clock()) {
          await order.require();
          continue;
        }
        order.stale.push(...objects.filter((object) => chosen.has(object)));
      } catch (error) {
        order.failure ??= { error };
      }
      objects.splice(0, objects.length, ...objects.filter((object) => !chosen.has(object)));
    }
  }

  /** Sends one request, when it has its slot, with what fits into it then; what the service refuses whole is halved. */
  async function send(signal: AbortSignal | undefined): Promise<void> {
    const whole: PutObject[] = [];
    const weights = new Map<PutObject, number>();
    const results = new Map<string, PutResult>();
    let parts: Part[] | undefined;
    let failure: { error: unknown } | undefined;

    async function prepare(objects: PutObject[]): Promise<void> {
      if (!parts) {
        parts = takeParts((object) => {
          const bytes = fixed === undefined ? Buffer.byteLength(JSON.stringify(object)) : 0;
          weights.set(object, bytes);
          return bytes;
        });
        for (const part of parts) whole.push(...part.objects);
        isAsking = false;
        ask();
      }
      await requireParts(parts, objects);
      if (objects.length === 0) throw NOTHING;
      noteInSpan({ 'slotsync.objects': objects.length });
      if (parts.length > 1) linkTo(parts.map(({ order }) => order.place));
    }

    const learn = async (outcome: SentRequest['outcome'], objects: readonly PutObject[], seconds: number) => {
      const bytes = objects.reduce((sum, object) => sum + (weights.get(object) ?? 0), 0);
      if (fixed === undefined) await sizes.learn(type, { outcome, objects: objects.length, bytes, seconds });
    };

    /** One object alone is refused for more reasons than its size, unless the answer says so. */
    const noteTooLarge = async (objects: readonly PutObject[], status: number) => {
      if (objects.length > 1 || status === 413) await learn('too_large', objects, 0);
    };

    const noteSent = (objects: readonly PutObject[]) => {
      const sent = new Set(objects);
      for (const part of parts ?? []) part.order.noteSent(part.objects.filter((object) => sent.has(object)));
    };

    async function put(objects: PutObject[]): Promise<Map<string, PutResult>> {
      let sentAt: number | undefined;
      const beforeSend = async () => {
        await prepare(objects);
        sentAt = clock();
      };
      const seconds = () => (clock() - (sentAt ?? clock())) / 1000;
      try {
        const answered = await destination.putObjects(objects, { lane, signal, beforeSend });
        noteSent(objects);
        await learn('accepted', objects, seconds());
        return answered;
      } catch (error) {
        if (error === NOTHING) return new Map();
        if (sentAt === undefined) throw error;
        if (!NOT_CARRIED_OUT.has(codeOf(error))) noteSent(objects);
        const isAlone = narrowing?.isNarrowed() && objects.length === 1;
        const outcome = isAlone ? 'failed_alone' : outcomeOf(error);
        if (outcome) await learn(outcome, objects, seconds());
        throw error;
      }
    }

    try {
      await putHalving(put, whole, results, noteTooLarge);
    } catch (error) {
      failure = { error };
    }
    if (!parts) {
      isAsking = false;
      for (const order of line.splice(0)) withdraw(order, failure);
      return;
    }
    const isAnyAccepted = [...results.values()].some(({ accepted }) => accepted);
    if ([...results.values()].some((result) => result.accepted || result.status < 500)) narrowing?.answered();
    for (const { order, objects } of parts) {
      for (const { extId } of objects) {
        const result = results.get(extId);
        if (result) order.results.set(extId, result);
      }
      if (isAnyAccepted) order.noteAccepted();
      order.underWay--;
      if (order.failure || (failure && !sendAgain(order, objects, failure))) withdraw(order, failure);
      else if (order.underWay === 0 && order.rest.length === 0) withdraw(order);
    }
    ask();
  }

  /** Puts what of a failed request has no answer back into the line, in smaller parts. False: nothing more is sent. */
  function sendAgain(order: Waiting, objects: readonly PutObject[], { error }: { error: unknown }): boolean {
    if (!narrowing || !isSpoiled(error)) return false;
    const unanswered = objects.filter(
      (object) => !order.results.has(object.extId) && !order.stale.includes(object),
    );
    const again = narrowing.failed(unanswered, error, order.goodUntil < clock());
    if (!again) return false;
    order.rest.push(...again);
    if (again.length > 0 && !line.includes(order)) line.push(order);
    return true;
  }

  return {
    put(order: Order, signal: AbortSignal | undefined): Promise<readonly PutObject[]> {
      return new Promise((resolve, reject) => {
        const waiting: Waiting = {
          ...order,
          signal,
          place: here(),
          rest: narrowing?.inOrder(order.objects) ?? [...order.objects],
          stale: [],
          underWay: 0,
          failure: undefined,
          end: () => {
            const error = waiting.failure?.error;
            for (const [object, error] of narrowing?.culprits() ?? []) order.noteCulprit(object, error);
            if (waiting.failure) reject(isOneLeft(waiting) ? failsOnObject(error, true) : error);
            else resolve(waiting.stale);
          },
        };
        if (order.isAgain) line.unshift(waiting);
        else line.push(waiting);
        ask();
      });
    },
  };
}

/** A request failed for one object alone, when all others of its batch were answered. */
function isOneLeft({ objects, results, stale, failure }: Waiting): boolean {
  return isSpoiled(failure?.error) && results.size > 0 && objects.length - results.size - stale.length === 1;
}

/** What a failure says of the size of its request; undefined: nothing. */
function outcomeOf(error: unknown): SentRequest['outcome'] | undefined {
  if (!(error instanceof SlotsyncError)) return undefined;
  const { status, reason } = error.facts;
  if (reason === 'timeout' || GATEWAY_TIMEOUTS.includes(status)) return 'too_slow';
  return FAILED.has(error.code) ? 'failed' : undefined;
}
