// Sends a request with objects of several batches. Halves a request that the service refuses as a whole. Learns from
// each answer how many objects fit.
import type { Destination, PutObject, PutResult } from '../../destination/destination.js';
import { refusedContent } from '../../destination/http-errors.js';
import { codeOf, messageWithDetail, SlotsyncError } from '../../errors/errors.js';
import type { Place } from '../../process/tracing.js';
import type { DestinationObject } from '../../streams/destination-object.js';
import type { SentRequest } from './request-size.js';

/** Results of one batch's objects, by external id. */
export interface Written {
  results: Map<string, PutResult>;
  /** Objects that were sent, so the service may have written them. */
  sent: Set<string>;
  /** Objects on which the service fails, with the errors. The service may have written them nevertheless. */
  culprits: Map<string, unknown>;
  /** Objects not sent in time: what was read from the service was too old. */
  unsent: Set<string>;
  /** True if the service accepted any object of these requests, of this batch or another. */
  isAnyAccepted: boolean;
  /** Number of requests that got a slot, and clock time in milliseconds of the last slot. */
  slots: number;
  lastSlotAt: number;
  /** First error of a request. Some objects may have results nevertheless. */
  failure: { error: unknown } | undefined;
}

/** Objects of one batch within a request. */
export interface Part {
  objects: readonly PutObject[];
  /** Trace position at which the batch added the objects to the line. */
  place: Place;
  written: Written;
  /** Clock time in milliseconds until which the objects may be sent. Later, they must be read again. */
  goodUntil: number;
  /** Called when the request has its slot. If it throws, the objects are left out of the request. */
  claim: { confirm(): Promise<void> };
}

type Put = ReturnType<Destination['openPut']>;

interface Sending {
  open: () => Put;
  clock: () => number;
  /** Called after each request, with its size and outcome. */
  learn: (request: SentRequest) => void;
  /** Returns true if an object that fails alone must be the cause. */
  isNarrowed: () => boolean;
}

/** Error codes of writes that were certainly not carried out. `configuration` may come from the answer's parsing. */
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
/** Error codes of writes that may have failed because of their size. */
const FAILED = new Set(['answer_lost', 'gateway_answered', 'service_failed']);
/** Status codes of a gateway whose upstream request timed out. */
const GATEWAY_TIMEOUTS: readonly unknown[] = [408, 504];
/** Sends the parts in one request, which has its slot in `first`. Halves it if it is refused; halves get new slots. */
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

/** Sends the objects that may still be written. Repeats the request while the service asks for a retry. */
async function sendPart(
  parts: readonly Part[],
  objects: readonly PutObject[],
  put: Put,
  { clock, learn, isNarrowed }: Sending,
): Promise<Answered<PutObject>> {
  const sharedBy = parts.length > 1 ? parts.map(({ place }) => place) : [];
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

/** Returns the objects that their batches may still write, and that were read recently enough. */
async function confirm(
  parts: readonly Part[],
  objects: readonly PutObject[],
  clock: () => number,
): Promise<readonly PutObject[]> {
  let confirmed = objects;
  for (const { objects: taken, written, goodUntil, claim } of parts) {
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
  for (const { objects: taken, written } of parts)
    for (const object of taken) if (sent.has(object)) written.sent.add(object.extId);
}

/** Returns what a failure teaches about the request size. Undefined if nothing. */
function outcomeOf(error: unknown): SentRequest['outcome'] | undefined {
  if (!(error instanceof SlotsyncError)) return undefined;
  const { status, reason } = error.facts;
  if (reason === 'timeout' || GATEWAY_TIMEOUTS.includes(status)) return 'too_slow';
  return FAILED.has(error.code) ? 'failed' : undefined;
}

const TOO_LARGE = 413;

/** Answer to a request. `sent`: the objects in the request, possibly fewer than given. */
export type Answered<T> = { sent: readonly T[] } & ({ results: Map<string, PutResult> } | { error: unknown });

/**
 * Sends all objects, so that a refused object does not affect the others. A request refused as a whole is halved until
 * the refused object is alone: 2·k·log2(n) requests for k refused objects of n. `results` is filled as answers arrive,
 * so it is valid even after an error. Returns the lists refused for their size: no object of them was refused alone,
 * and no list as long was accepted. Throws other errors of `put`.
 */
export async function putHalving<T extends DestinationObject>(
  put: (objects: readonly T[]) => Promise<Answered<T>>,
  objects: readonly T[],
  results: Map<string, PutResult>,
): Promise<(readonly T[])[]> {
  const toSend = [objects];
  const refused: (readonly T[])[] = [];
  const alone = new Set<T>();
  let accepted = 0;
  for (let list = toSend.shift(); list; list = toSend.shift()) {
    const { sent, ...answer } = await put(list);
    if ('results' in answer) {
      for (const [extId, result] of answer.results) results.set(extId, result);
      accepted = Math.max(accepted, sent.length);
      continue;
    }
    const status = refusalStatus(answer.error, sent.length);
    if (status === undefined) throw answer.error;
    const [only] = sent;
    if (sent.length === 1 && only) {
      alone.add(only);
      results.set(only.extId, { accepted: false, status, message: messageWithDetail(answer.error) });
    } else {
      refused.push(sent);
      const middle = Math.ceil(sent.length / 2);
      toSend.unshift(sent.slice(0, middle), sent.slice(middle));
    }
  }
  const isForNumber = (all: readonly T[]) =>
    all.length > accepted && !all.some((object) => alone.has(object));
  return refused.filter(isForNumber).toReversed();
}

/** Treats an answer that is too large like a refused request, since smaller requests have smaller answers. */
function refusalStatus(error: unknown, objects: number): number | undefined {
  return codeOf(error) === 'answer_too_large' && objects > 1 ? TOO_LARGE : refusedContent(error);
}
