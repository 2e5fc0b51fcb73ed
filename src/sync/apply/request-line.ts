// A line of objects before the quota. A request takes its slot, then from the head of the line what fits, and keeps of it
// what is still to be written; then it is sent, and each batch learns of its own objects. What it takes is decided with the
// slot in hand: until then the line grows, and what the last answers have taught counts.
import type { Destination, PutObject, PutResult } from '../../destination/destination.js';
import { isSpoiled } from '../../destination/http-errors.js';
import type { Lane } from '../../destination/quota/limiter.js';
import { codeOf, SlotsyncError } from '../../errors/errors.js';
import { at, here, type Place } from '../../process/tracing.js';
import { failsOnObject, type Attempt, type Narrowing } from './narrow-failures.js';
import { putHalving, type Answered } from './put-halving.js';
import { mostBytes, type RequestSizes, type SentRequest } from './request-size.js';

/** The objects that one batch has to write. */
export interface Order {
  objects: readonly PutObject[];
  attempt: Attempt;
  /** Milliseconds of `clock`: what is not sent by then was decided by a reading that is too old. */
  goodUntil: number;
  /** Its objects were not sent in time, and were read again: it goes first. */
  isAgain: boolean;
  /** Confirmed with the slot of each request in hand. What that throws keeps these objects out of the request. */
  claim: { confirm(): Promise<void> };
  /** Hears of each result as soon as it is known. */
  answered?: ((extId: string, result: PutResult) => void) | undefined;
}

/** Results of the objects of one batch, by external id. */
export interface Written {
  results: Map<string, PutResult>;
  /** Sent, and maybe carried out. */
  sent: Set<string>;
  /** The service fails on these, with the failure of each; it may have carried the write out all the same. */
  culprits: Map<string, unknown>;
  /** Not sent before their reading was too old. */
  unsent: Set<string>;
  /** An object of the same requests was accepted, of this batch or of another. */
  isAnyAccepted: boolean;
  /** Requests with its objects that had a slot, and the milliseconds of `clock` when the last of them got it. */
  slots: number;
  lastSlotAt: number;
  /** The first failure of a request. Some objects may have their results all the same. */
  failure: { error: unknown } | undefined;
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

interface Waiting extends Order {
  written: Written;
  signal: AbortSignal | undefined;
  rest: PutObject[];
  /** The place in the trace at which it was put into the line. */
  place: Place;
  /** Requests under way with objects of this order. */
  underWay: number;
  end(): void;
}

/** The objects of an order in a request. */
interface Part {
  order: Waiting;
  objects: readonly PutObject[];
}

export type Puts = Pick<Destination, 'openPut'>;
type Put = ReturnType<Destination['openPut']>;

interface LineOptions {
  type: string;
  lane: Lane;
  sizes: RequestSizes;
  clock: () => number;
  /** Objects in one request; undefined: what was learned. */
  fixed: number | undefined;
  /** For the line of a single batch. */
  narrowing?: Narrowing;
}

/** Failures of a write that the service cannot have carried out. */
const NOT_CARRIED_OUT = new Set([
  'claim_lost',
  'configuration',
  'forbidden',
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

export function createLine(destination: Puts, options: LineOptions) {
  const { type, lane, sizes, clock, fixed, narrowing } = options;
  const line: Waiting[] = [];
  const weights = new WeakMap<PutObject, number>();
  /** A request waits for its slot: what comes meanwhile may go with it. */
  let isAsking = false;

  function ask(): void {
    const [first] = line;
    if (isAsking || !first || (narrowing && first.underWay >= narrowing.atOnce())) return;
    isAsking = true;
    void at(first.place, () => sendNext(first.signal));
  }

  /** Sends one request: its slot, what fits into it by then, its answer, and what the answer says of each object. */
  async function sendNext(signal: AbortSignal | undefined): Promise<void> {
    const put = destination.openPut({ lane, signal });
    const failure = await put.takeSlot().catch((error: unknown) => ({ error }));
    isAsking = false;
    if (failure) {
      put.end();
      for (const order of line.splice(0)) withdraw(order, failure);
      return;
    }
    const parts = takeParts();
    ask();
    settle(parts, await sendParts(parts, put, signal));
    ask();
  }

  /** Takes from the head of the line as many objects as fit into a request. */
  function takeParts(): Part[] {
    const size = sizes.of(type);
    const most = fixed ?? (lane === 'incremental' ? Math.min(MOST_OF_A_CHANGE, size.objects) : size.objects);
    const parts: Part[] = [];
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
        bytes += weigh(object);
        if (narrowing)
          limit = Math.min(limit, narrowing.limitOf(object, Math.min(most, order.objects.length)));
        if (count >= limit || (count > 0 && fixed === undefined && bytes > mostBytes(size))) break;
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

  function weigh(object: PutObject): number {
    const bytes = fixed === undefined ? Buffer.byteLength(JSON.stringify(object)) : 0;
    weights.set(object, bytes);
    return bytes;
  }

  /** Sends the parts; what the service refuses whole is halved, and each half has a slot of its own. */
  async function sendParts(parts: readonly Part[], first: Put, signal: AbortSignal | undefined) {
    const results = new Map<string, PutResult>();
    const puts = [first];
    const send = (objects: readonly PutObject[]) =>
      sendOnce(parts, objects, puts.pop() ?? destination.openPut({ lane, signal }));
    try {
      const whole = parts.flatMap(({ objects }) => objects);
      for (const { objects, status } of await putHalving(send, whole, results))
        // An object alone is refused for more reasons than its size, unless the answer says so.
        if (objects.length > 1 || status === 413) learn('too_large', objects, 0);
      return { results };
    } catch (error) {
      return { results, failure: { error } };
    }
  }

  /** Sends what of the objects is still to be written, again while the service asks for it. */
  async function sendOnce(
    parts: readonly Part[],
    objects: readonly PutObject[],
    put: Put,
  ): Promise<Answered<PutObject>> {
    let sent = objects;
    let sentAt: number | undefined;
    try {
      for (;;) {
        if (!put.hasSlot()) await put.takeSlot();
        sent = await confirm(parts, sent);
        if (sent.length === 0) return { sent, results: new Map() };
        sentAt = clock();
        const results = await put.send(sent, parts.length > 1 ? parts.map(({ order }) => order.place) : []);
        if (!results) continue;
        noteSent(parts, sent);
        learn('accepted', sent, (clock() - sentAt) / 1000);
        return { sent, results };
      }
    } catch (error) {
      if (sentAt === undefined) return { sent, error };
      if (!NOT_CARRIED_OUT.has(codeOf(error))) noteSent(parts, sent);
      const isAlone = narrowing?.isNarrowed() && sent.length === 1;
      const outcome = isAlone ? 'failed_alone' : outcomeOf(error);
      if (outcome) learn(outcome, sent, (clock() - sentAt) / 1000);
      return { sent, error };
    } finally {
      put.end();
    }
  }

  /** Returns the objects that their batches may still write, by readings that are not too old. */
  async function confirm(
    parts: readonly Part[],
    objects: readonly PutObject[],
  ): Promise<readonly PutObject[]> {
    let confirmed = objects;
    for (const { order, objects: taken } of parts) {
      const theirs = new Set(taken);
      if (!confirmed.some((object) => theirs.has(object))) continue;
      try {
        if (order.written.failure) throw order.written.failure.error;
        if (order.goodUntil >= clock()) {
          await order.claim.confirm();
          continue;
        }
        for (const object of confirmed) if (theirs.has(object)) order.written.unsent.add(object.extId);
      } catch (error) {
        order.written.failure ??= { error };
      }
      confirmed = confirmed.filter((object) => !theirs.has(object));
    }
    return confirmed;
  }

  function learn(outcome: SentRequest['outcome'], objects: readonly PutObject[], seconds: number) {
    const bytes = objects.reduce((sum, object) => sum + (weights.get(object) ?? 0), 0);
    if (fixed === undefined) sizes.learn(type, { outcome, objects: objects.length, bytes, seconds });
  }

  /** Notes for each batch the results of its objects, and ends those of which nothing more is sent. */
  function settle(
    parts: readonly Part[],
    { results, failure }: { results: ReadonlyMap<string, PutResult>; failure?: { error: unknown } },
  ): void {
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
      if (written.failure || (failure && !sendAgain(order, objects, failure))) withdraw(order, failure);
      else if (order.underWay === 0 && order.rest.length === 0) withdraw(order);
    }
  }

  /** Puts what of a failed request has no answer back into the line, in smaller parts. False: nothing more is sent. */
  function sendAgain(order: Waiting, objects: readonly PutObject[], { error }: { error: unknown }): boolean {
    if (!narrowing || !isSpoiled(error)) return false;
    const { results, unsent } = order.written;
    const unanswered = objects.filter(({ extId }) => !results.has(extId) && !unsent.has(extId));
    const again = narrowing.failed(unanswered, error, order.goodUntil < clock());
    if (!again) return false;
    for (const object of again) order.rest.push(object);
    if (again.length > 0 && !line.includes(order)) line.push(order);
    return true;
  }

  /** Nothing more of it is sent. */
  function withdraw(order: Waiting, failure?: { error: unknown }): void {
    order.written.failure ??= narrowing ? narrowing.failure(failure) : failure;
    order.rest = [];
    const position = line.indexOf(order);
    if (position >= 0) line.splice(position, 1);
    if (order.underWay > 0) return;
    for (const [{ extId }, error] of narrowing?.culprits() ?? []) order.written.culprits.set(extId, error);
    if (isOneLeft(order))
      order.written.failure = { error: failsOnObject(order.written.failure?.error, true) };
    order.end();
  }

  return {
    /** Writes the objects of an order, and notes in `written` what becomes of them. */
    put(order: Order, written: Written, signal: AbortSignal | undefined): Promise<void> {
      return new Promise((end) => {
        const rest = narrowing?.inOrder(order.objects) ?? [...order.objects];
        const waiting: Waiting = { ...order, written, signal, place: here(), rest, underWay: 0, end };
        if (order.isAgain) line.unshift(waiting);
        else line.push(waiting);
        ask();
      });
    },
  };
}

function noteSent(parts: readonly Part[], objects: readonly PutObject[]): void {
  const sent = new Set(objects);
  for (const { order, objects: taken } of parts)
    for (const object of taken) if (sent.has(object)) order.written.sent.add(object.extId);
}

/** A request failed for one object alone, when all others of its batch were answered. */
function isOneLeft({ objects, written: { results, unsent, failure } }: Waiting): boolean {
  return isSpoiled(failure?.error) && results.size > 0 && objects.length - results.size - unsent.size === 1;
}

/** The outcome that a failure means for the size of requests; undefined: none. */
function outcomeOf(error: unknown): SentRequest['outcome'] | undefined {
  if (!(error instanceof SlotsyncError)) return undefined;
  const { status, reason } = error.facts;
  if (reason === 'timeout' || GATEWAY_TIMEOUTS.includes(status)) return 'too_slow';
  return FAILED.has(error.code) ? 'failed' : undefined;
}
