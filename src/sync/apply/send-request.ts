// Sends a request with objects of several batches, halves it while it is refused whole, and learns from each answer how much the service
// takes.
import type { Destination, PutObject, PutResult } from '../../destination/destination.js';
import { refusedContent } from '../../destination/http-errors.js';
import { codeOf, messageWithDetail, SlotsyncError } from '../../errors/errors.js';
import type { Place } from '../../process/tracing.js';
import type { DestinationObject } from '../../streams/destination-object.js';
import type { SentRequest } from './request-size.js';

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

/** The objects of a batch in a request. */
export interface Part {
  objects: readonly PutObject[];
  /** The place in the trace at which the batch put them into the line. */
  place: Place;
  written: Written;
  /** Milliseconds of `clock`: what is not sent by then was decided by a reading that is too old. */
  goodUntil: number;
  /** Confirmed with the slot of each request in hand. What that throws keeps the objects out of the request. */
  claim: { confirm(): Promise<void> };
}

type Put = ReturnType<Destination['openPut']>;

interface Sending {
  open: () => Put;
  clock: () => number;
  /** Hears of each request. */
  learn: (request: SentRequest) => void;
  /** An object that fails alone is the cause itself. */
  isNarrowed: () => boolean;
}

/** Failures of a write that the service cannot have carried out. Not `configuration`: the dialect may have failed at the answer. */
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
/** Failures of a write that may come of how much there was in it. */
const FAILED = new Set(['answer_lost', 'gateway_answered', 'service_failed']);
/** A gateway that waited no longer. */
const GATEWAY_TIMEOUTS: readonly unknown[] = [408, 504];
/** Sends the parts; what the service refuses whole is halved, and each half has a slot of its own. `first` has a slot. */
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

/** Sends what of the objects is still to be written, again while the service asks for it. */
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

/** Returns the objects that their batches may still write, by readings that are not too old. */
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

/** The outcome that a failure means for the size of requests; undefined: none. */
function outcomeOf(error: unknown): SentRequest['outcome'] | undefined {
  if (!(error instanceof SlotsyncError)) return undefined;
  const { status, reason } = error.facts;
  if (reason === 'timeout' || GATEWAY_TIMEOUTS.includes(status)) return 'too_slow';
  return FAILED.has(error.code) ? 'failed' : undefined;
}

const TOO_LARGE = 413;

/** The answer to a request. `sent`: the objects in it; some of those that it was asked to send may be left out. */
export type Answered<T> = { sent: readonly T[] } & ({ results: Map<string, PutResult> } | { error: unknown });

/**
 * Puts all objects, so that one that the service refuses does not spoil the others. A request that is refused whole is halved until the
 * refused object stands alone: 2·k·log2(n) requests for k such objects of n. `results` is filled as answers arrive, so that what is
 * known survives an error. Returns what was refused for the number of its objects: none of it was refused alone, and no list of as many was
 * accepted. Throws an error of `put` that is no refusal.
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

/** An answer that is too large may have accepted its objects, and smaller requests have smaller answers. */
function refusalStatus(error: unknown, objects: number): number | undefined {
  return codeOf(error) === 'answer_too_large' && objects > 1 ? TOO_LARGE : refusedContent(error);
}
