// One PUT for many objects, in which one that the service refuses does not spoil the others. Where it refuses a whole
// request, the request is halved until the refused object stands alone: 2·k·log2(n) requests for k such objects of n.
import { messageWithDetail, SlotsyncError } from '../../errors.js';
import type { PutResult } from '../../destination/destination.js';
import type { DestinationObject } from '../../streams/destination-object.js';

/** A whole call refused for what it holds, rather than for who asks or when. */
const REFUSALS = new Set([400, 404, 409, 413, 422]);

/**
 * Puts all objects; `results` is filled as answers arrive, so that what is known survives an error. `put` may change the
 * list that it is given: what it sends counts. Returns the status by which all of them were refused, or undefined.
 * Throws what `put` throws, unless it is a refusal.
 */
export async function putHalving<T extends DestinationObject>(
  put: (objects: T[]) => Promise<Map<string, PutResult>>,
  objects: T[],
  results: Map<string, PutResult>,
): Promise<number | undefined> {
  try {
    for (const [extId, result] of await put(objects)) results.set(extId, result);
    return undefined;
  } catch (error) {
    const status = refusalStatus(error);
    if (status === undefined) throw error;
    const [only] = objects;
    if (objects.length === 1 && only) {
      results.set(only.extId, { accepted: false, status, message: messageWithDetail(error) });
      return status;
    }
    const middle = Math.ceil(objects.length / 2);
    await putHalving(put, objects.slice(0, middle), results);
    await putHalving(put, objects.slice(middle), results);
    return status;
  }
}

function refusalStatus(error: unknown): number | undefined {
  if (!(error instanceof SlotsyncError) || error.code !== 'refused') return undefined;
  const { status } = error.facts;
  return typeof status === 'number' && REFUSALS.has(status) ? status : undefined;
}
