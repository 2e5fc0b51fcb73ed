// One PUT for many objects, in which one that the service refuses does not spoil the others. Where it refuses a whole
// request, the request is halved until the refused object stands alone: 2·k·log2(n) requests for k such objects of n.
import { messageWithDetail, SlotsyncError } from '../../errors.js';
import type { PutResult } from '../../destination/destination.js';
import type { DestinationObject } from '../../streams/destination-object.js';

/** A whole call refused for what it holds, rather than for who asks or when. */
const REFUSALS = new Set([400, 404, 409, 413, 422]);

/**
 * Puts all objects; `results` is filled as answers arrive, so that what is known survives an error. `put` may change the
 * list that it is given: what it sends counts. `noteTooLarge` is told what was refused whole when none of it was refused
 * alone, or when it is one object. Returns whether an object was refused alone. Throws what `put` throws, unless it is a
 * refusal.
 */
export async function putHalving<T extends DestinationObject>(
  put: (objects: T[]) => Promise<Map<string, PutResult>>,
  objects: T[],
  results: Map<string, PutResult>,
  noteTooLarge: (objects: readonly T[], status: number) => Promise<void> = async () => undefined,
): Promise<boolean> {
  try {
    for (const [extId, result] of await put(objects)) results.set(extId, result);
    return false;
  } catch (error) {
    const status = refusalStatus(error);
    if (status === undefined) throw error;
    const [only] = objects;
    if (objects.length === 1 && only) {
      results.set(only.extId, { accepted: false, status, message: messageWithDetail(error) });
      await noteTooLarge(objects, status);
      return true;
    }
    const middle = Math.ceil(objects.length / 2);
    const isLeftRefused = await putHalving(put, objects.slice(0, middle), results, noteTooLarge);
    const isRightRefused = await putHalving(put, objects.slice(middle), results, noteTooLarge);
    if (isLeftRefused || isRightRefused) return true;
    await noteTooLarge(objects, status);
    return false;
  }
}

function refusalStatus(error: unknown): number | undefined {
  if (!(error instanceof SlotsyncError) || error.code !== 'refused') return undefined;
  const { status } = error.facts;
  return typeof status === 'number' && REFUSALS.has(status) ? status : undefined;
}
