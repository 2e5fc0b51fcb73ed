// Sends one request with objects of several batches. Divides it in halves if the service refuses it as a whole. Reports
// the result for learning the request size.
import type { Destination, PutObject, PutResult } from '../../destination/destination.js';
import { refusedContent } from '../../destination/http-errors.js';
import { codeOf, messageWithDetail, SlotsyncError } from '../../errors/errors.js';
import { tryInHalves } from '../../errors/try-in-halves.js';
import type { Place } from '../../process/tracing.js';
import type { DestinationObject } from '../../streams/destination-object.js';
import type { SentRequest } from './request-size.js';

/**
 * Results of the objects of one batch, by external id. The line and each request add what they learn; only when `put` of the line
 * resolves, the results are complete.
 */
export interface Written {
  results: Map<string, PutResult>;
  /** Objects that were sent. The service may have written them. */
  sent: Set<string>;
  /** Objects that make the service fail, with the error. The service may have written them nevertheless. */
  culprits: Map<string, unknown>;
  /** Objects that were not sent, because they were read too long ago. */
  unsent: Set<string>;
  /** True if the service accepted any object in these requests, also objects of other batches. */
  isAnyAccepted: boolean;
  /** Number of requests that got a slot. `lastSlotAt`: clock time in milliseconds of the last slot. */
  slots: number;
  lastSlotAt: number;
  /** First error of a request. Some objects may have results nevertheless. */
  failure: { error: unknown } | undefined;
}

/** A batch whose objects are in a line. */
export interface InLine {
  /** Position in the trace where the batch added its objects. */
  place: Place;
  written: Written;
  /** Clock time in milliseconds. If the objects are sent later, they must first be read again. */
  goodUntil: number;
  /** Called when the request has its slot. If it throws, the batch's objects are left out of the request. */
  claim: { confirm(): Promise<void> };
}

/** The objects of one batch within a request. */
export interface Part<O extends InLine = InLine> {
  order: O;
  objects: readonly PutObject[];
}

type Put = ReturnType<Destination['openPut']>;

interface Sending {
  open: () => Put;
  clock: () => number;
  /** Called with the size and result of each request. */
  learn: (request: SentRequest) => void;
  /** Returns true if the failure of a single object shows that this object is the cause. */
  isNarrowed: () => boolean;
}

/** Errors after which the service has certainly not written. `configuration` may also occur after a write. */
const NOT_CARRIED_OUT = new Set([
  'claim_lost',
  'forbidden',
  'limiter_closed',
  'quota_unavailable',
  'refused',
  'run_stopped',
  'service_unreachable',
  'throttled',
  'unauthorized',
]);
/** Errors that a request may cause because it is too large. */
const FAILED = new Set(['answer_lost', 'gateway_answered', 'service_failed']);
/** HTTP statuses by which a gateway reports a timeout. */
const GATEWAY_TIMEOUTS: readonly unknown[] = [408, 504];
/** Sends a request; its first slot is already taken (`first`). If refused, sends the halves, each with a new slot. */
export async function sendRequest(
  parts: readonly Part[],
  first: Put,
  sending: Sending,
): Promise<{ results: Map<string, PutResult>; failure?: { error: unknown } }> {
  const results = new Map<string, PutResult>();
  const puts = [first];
  const send = (objects: readonly PutObject[]) =>
    sendPart(parts, objects, puts.pop() ?? sending.open(), sending);
  try {
    const whole = parts.flatMap(({ objects }) => objects);
    for (const objects of await putHalving(send, whole, results))
      sending.learn({ outcome: 'too_large', objects: objects.length, seconds: 0 });
    return { results };
  } catch (error) {
    return { results, failure: { error } };
  }
}

/** Sends objects in one request, and repeats the request while the service asks for a retry. */
async function sendPart(
  parts: readonly Part[],
  objects: readonly PutObject[],
  put: Put,
  { clock, learn, isNarrowed }: Sending,
): Promise<Answered<PutObject>> {
  const sharedBy = parts.length > 1 ? parts.map(({ order }) => order.place) : [];
  let sent = objects;
  let sentAt: number | undefined;
  const taught = (outcome: SentRequest['outcome'], since: number) =>
    learn({ outcome, objects: sent.length, seconds: (clock() - since) / 1000 });
  try {
    for (;;) {
      if (!put.hasSlot()) await put.takeSlot();
      sent = await confirm(parts, sent, clock);
      if (sent.length === 0) return { sent, results: new Map() };
      sentAt = clock();
      const results = await put.send(sent, sharedBy);
      if (!results) continue;
      noteSent(parts, sent);
      taught('accepted', sentAt);
      return { sent, results };
    }
  } catch (error) {
    if (sentAt === undefined) return { sent, error };
    if (!NOT_CARRIED_OUT.has(codeOf(error))) noteSent(parts, sent);
    const outcome = isNarrowed() && sent.length === 1 ? 'failed_alone' : outcomeOf(error);
    if (outcome) taught(outcome, sentAt);
    return { sent, error };
  } finally {
    put.end();
  }
}

/** Returns the objects that may still be sent: their batch has its claim, and they were read recently. */
async function confirm(
  parts: readonly Part[],
  objects: readonly PutObject[],
  clock: () => number,
): Promise<readonly PutObject[]> {
  let confirmed = objects;
  for (const { objects: taken, order } of parts) {
    const { written, goodUntil, claim } = order;
    const theirs = new Set(taken);
    if (!confirmed.some((object) => theirs.has(object))) continue;
    try {
      if (written.failure) throw written.failure.error;
      if (goodUntil >= clock()) {
        await claim.confirm();
        continue;
      }
      for (const object of confirmed) if (theirs.has(object)) written.unsent.add(object.extId);
    } catch (error) {
      written.failure ??= { error };
    }
    confirmed = confirmed.filter((object) => !theirs.has(object));
  }
  return confirmed;
}

function noteSent(parts: readonly Part[], objects: readonly PutObject[]): void {
  const sent = new Set(objects);
  for (const { objects: taken, order } of parts)
    for (const object of taken) if (sent.has(object)) order.written.sent.add(object.extId);
}

/** Returns what an error shows about the size of requests. Undefined for errors that show nothing. */
function outcomeOf(error: unknown): SentRequest['outcome'] | undefined {
  if (!(error instanceof SlotsyncError)) return undefined;
  const { status, reason } = error.facts;
  if (reason === 'timeout' || GATEWAY_TIMEOUTS.includes(status)) return 'too_slow';
  return FAILED.has(error.code) ? 'failed' : undefined;
}

const TOO_LARGE = 413;

/** Answer to a request. `sent`: objects that were sent, which may be fewer than requested. */
export type Answered<T> = { sent: readonly T[] } & ({ results: Map<string, PutResult> } | { error: unknown });

/**
 * Sends objects so that a refused one does not affect the others. A refused request is halved until the refused object
 * is alone: 2·k·log2(n) requests for k refused objects of n. `results` is filled as answers arrive. Returns the lists
 * refused only for their size: none of their objects was refused alone, and no list of that size or larger was
 * accepted. Throws all other errors of `put`.
 */
export async function putHalving<T extends DestinationObject>(
  put: (objects: readonly T[]) => Promise<Answered<T>>,
  objects: readonly T[],
  results: Map<string, PutResult>,
): Promise<(readonly T[])[]> {
  const refused: (readonly T[])[] = [];
  const alone = new Set<T>();
  let accepted = 0;
  await tryInHalves(objects, async (list) => {
    const { sent, ...answer } = await put(list);
    if ('results' in answer) {
      for (const [extId, result] of answer.results) results.set(extId, result);
      accepted = Math.max(accepted, sent.length);
      return [];
    }
    const status = refusalStatus(answer.error, sent.length);
    if (status === undefined) throw answer.error;
    const [only] = sent;
    if (sent.length === 1 && only) {
      alone.add(only);
      results.set(only.extId, { accepted: false, status, message: messageWithDetail(answer.error) });
    } else refused.push(sent);
    return sent;
  });
  const isForNumber = (all: readonly T[]) =>
    all.length > accepted && !all.some((object) => alone.has(object));
  return refused.filter(isForNumber).toReversed();
}

/** An answer that is too large is treated like a refusal, because smaller requests have smaller answers. */
function refusalStatus(error: unknown, objects: number): number | undefined {
  return codeOf(error) === 'answer_too_large' && objects > 1 ? TOO_LARGE : refusedContent(error);
}
