// Checks the answer to a write: each sent object must have exactly one result, under its own external id, with a number
// that no other object has. Any other result is not accepted, and its message says what the service did.
import { isAccepted } from '../dialect/default-dialect.js';
import type { WriteResult } from '../dialect/dialect.js';
import { describeRule, findRule, isSimilarId } from '../streams/external-id-rule.js';

/**
 * Result of writing one object. Without a `status`, the answer contradicts the request: the service has carried out the
 * write, and may have changed another object.
 */
export type PutResult =
  | { accepted: true; id: string | undefined }
  | { accepted: false; status: number; message: string }
  | { accepted: false; status: undefined; message: string };

/** Describes that the service answered under another external id, and names the setting that makes both ids equal. */
export function knownAs(sent: string, answered: string): string {
  const rule = findRule(answered, sent);
  const setting = rule ? `; if both ids mean one object, set service.externalIds: ${describeRule(rule)}` : '';
  return `the service knows '${sent}' as '${answered}'${setting}`;
}

const contradicts = (message: string): PutResult => ({ accepted: false, status: undefined, message });

/**
 * Returns the results by sent external id. An object without a result is left out, unless the answer has a result for
 * an id that was not sent. `toKey` returns the form of an id that the service compares.
 */
export function matchResults(
  sent: readonly { extId: string }[],
  results: readonly WriteResult[],
  toKey: (extId: string) => string,
): Map<string, PutResult> {
  const given = new Map(sent.map(({ extId }) => [extId, [] as WriteResult[]]));
  const strays: WriteResult[] = [];
  for (const result of results) (given.get(toKey(result.extId)) ?? strays).push(result);
  const holders = new Map<string, string[]>();
  for (const [extId, [only, another]] of given)
    if (only?.id !== undefined && !another && isAccepted(only.status))
      holders.set(only.id, [...(holders.get(only.id) ?? []), extId]);

  function judge(extId: string, [only, ...more]: readonly WriteResult[]): PutResult | undefined {
    if (!only) {
      const stray = strays.find((one) => isSimilarId(one.extId, extId)) ?? strays[0];
      if (!stray) return undefined;
      if (sent.length === 1 || isSimilarId(stray.extId, extId))
        return contradicts(knownAs(extId, stray.extId));
      return contradicts(
        `the service answered about '${stray.extId}', which was not sent, but not about '${extId}'`,
      );
    }
    if (more.length > 0) return contradicts(`the service returned ${more.length + 1} results for '${extId}'`);
    if (!isAccepted(only.status)) {
      const { status, reason = `refused with ${status}` } = only;
      return { accepted: false, status, message: reason };
    }
    const [other] = holders.get(only.id ?? '')?.filter((one) => one !== extId) ?? [];
    if (other !== undefined)
      return contradicts(`the service gave the same number, ${only.id}, to '${extId}' and '${other}'`);
    return { accepted: true, id: only.id };
  }

  return new Map(
    [...given].flatMap(([extId, ofObject]) => {
      const result = judge(extId, ofObject);
      return result ? [[extId, result] as const] : [];
    }),
  );
}
