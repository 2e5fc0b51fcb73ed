// What is assumed of the service and can be checked without writing. Each probe says in words whether the assumption
// holds; docs/api-contract.md has the same list with the settings that change it.
import type { Destination } from '../destination/destination.js';
import { readExpiry } from '../destination/access-token.js';
import { messageWithDetail } from '../errors.js';

export interface Assumption {
  /** As in docs/api-contract.md. */
  name: string;
  /** `unknown`: the service holds nothing to see it by, or it would take a write. */
  held: 'yes' | 'no' | 'unknown';
  found: string;
  /** Nothing may be written while it does not hold. */
  needed?: boolean;
}

const CONTEXT = { lane: 'incremental' } as const;
const DAY_SECONDS = 24 * 60 * 60;

/** Probes in a fixed order; a probe that fails is an assumption that did not hold, not an error. */
export async function probeAssumptions(
  destination: Destination,
  token: string,
  now = Date.now(),
): Promise<Assumption[]> {
  const today = Math.floor(now / 1000);
  const window = { from: today - 30 * DAY_SECONDS, to: today + 30 * DAY_SECONDS };
  return [
    probeToken(token, now),
    ...(await probeObjects(destination, window)),
    await probeFind(destination, 'reservations', window),
    await probeFind(destination, 'cancellations', window),
    await probeModified(destination, now),
    {
      name: 'write',
      held: 'unknown',
      found: 'PUT /objects is only seen when something is written; the first batch of a sync shows it',
    },
  ];
}

function probeToken(token: string, now: number): Assumption {
  const expiry = readExpiry(token);
  if (expiry === undefined) {
    return {
      name: 'token-expiry',
      held: 'no',
      found: 'the token does not say when it ends; service.tokenSeconds is used instead',
    };
  }
  return {
    name: 'token-expiry',
    held: 'yes',
    found: `the token says it ends in ${Math.round((expiry - now) / 1000)} s`,
  };
}

async function probeObjects(
  destination: Destination,
  window: { from: number; to: number },
): Promise<Assumption[]> {
  let answer: Awaited<ReturnType<Destination['probe']>>;
  try {
    answer = await destination.probe('objects', window, CONTEXT);
  } catch (error) {
    return [{ name: 'find-envelope', held: 'no', found: messageWithDetail(error), needed: true }];
  }
  const paged = typeof answer.totalPages === 'number' && typeof answer.totalResults === 'number';
  const envelope: Assumption = {
    name: 'find-envelope',
    held: paged ? 'yes' : 'no',
    found: paged
      ? `pages are numbered; ${answer.totalResults} objects in all`
      : 'the answer says nothing of further pages: one page is taken for all',
  };
  const [object] = answer.results as Record<string, unknown>[];
  if (!object)
    return [envelope, { name: 'object-shape', held: 'unknown', found: 'there is no object to look at yet' }];
  const missing = ['extId', 'typeId', 'active', 'fields'].filter((property) => !(property in object));
  const shape: Assumption = {
    name: 'object-shape',
    held: missing.length === 0 ? 'yes' : 'no',
    found:
      missing.length === 0
        ? 'an object that is read has extId, typeId, active and fields'
        : `an object that is read has no ${missing.join(', ')}`,
  };
  return [envelope, shape];
}

async function probeFind(
  destination: Destination,
  find: 'reservations' | 'cancellations',
  window: { from: number; to: number },
): Promise<Assumption> {
  try {
    const { totalResults, results } = await destination.probe(find, window, CONTEXT);
    const count = totalResults ?? results.length;
    return { name: `find-${find}`, held: 'yes', found: `${count} in the 30 days before and after today` };
  } catch (error) {
    return { name: `find-${find}`, held: 'no', found: messageWithDetail(error) };
  }
}

async function probeModified(destination: Destination, now: number): Promise<Assumption> {
  const name = 'modified';
  try {
    const isHonoured = await destination.honoursModified(now, CONTEXT);
    return {
      name,
      held: isHonoured ? 'yes' : 'no',
      found: isHonoured
        ? 'asked for bookings changed in the future, the service answers none'
        : 'the service ignores it: between nightly syncs the whole window is read instead',
    };
  } catch (error) {
    return { name, held: 'no', found: messageWithDetail(error) };
  }
}
