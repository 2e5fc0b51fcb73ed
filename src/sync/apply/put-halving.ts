// A PUT of many objects, in which an object that the service refuses does not spoil the others. Where it refuses a whole
// request, the request is halved until the refused object stands alone: 2·k·log2(n) requests for k such objects of n.
import { codeOf, messageWithDetail } from '../../errors/errors.js';
import type { PutResult } from '../../destination/destination.js';
import { refusedContent } from '../../destination/http-errors.js';
import type { DestinationObject } from '../../streams/destination-object.js';

const TOO_LARGE = 413;

/** The answer to a request. `sent`: the objects in it; some of those that it was asked to send may be left out. */
export type Answered<T> = { sent: readonly T[] } & ({ results: Map<string, PutResult> } | { error: unknown });

/** A request that was refused whole. */
interface Refused<T> {
  objects: readonly T[];
  status: number;
}

/**
 * Puts all objects; `results` is filled as answers arrive, so that what is known survives an error. Returns what was refused
 * whole although none of it was refused alone, and each object that was refused alone. Throws an error of `put` that is no
 * refusal.
 */
export async function putHalving<T extends DestinationObject>(
  put: (objects: readonly T[]) => Promise<Answered<T>>,
  objects: readonly T[],
  results: Map<string, PutResult>,
): Promise<Refused<T>[]> {
  const toSend = [objects];
  const refused: Refused<T>[] = [];
  const alone = new Set<T>();
  for (let list = toSend.shift(); list; list = toSend.shift()) {
    const { sent, ...answer } = await put(list);
    if ('results' in answer) {
      for (const [extId, result] of answer.results) results.set(extId, result);
      continue;
    }
    const status = refusalStatus(answer.error, sent.length);
    if (status === undefined) throw answer.error;
    refused.push({ objects: sent, status });
    const [only] = sent;
    if (sent.length === 1 && only) {
      alone.add(only);
      results.set(only.extId, { accepted: false, status, message: messageWithDetail(answer.error) });
    } else {
      const middle = Math.ceil(sent.length / 2);
      toSend.unshift(sent.slice(0, middle), sent.slice(middle));
    }
  }
  return refused
    .filter(({ objects: all }) => all.length === 1 || !all.some((object) => alone.has(object)))
    .toReversed();
}

/** An answer that is too large may have accepted its objects, and smaller requests have smaller answers. */
function refusalStatus(error: unknown, objects: number): number | undefined {
  return codeOf(error) === 'answer_too_large' && objects > 1 ? TOO_LARGE : refusedContent(error);
}
