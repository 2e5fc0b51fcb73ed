// Checks assumptions about the service without writing anything. docs/service-contract.md lists the assumptions, and
// the setting to change if one is wrong.
import { randomUUID } from 'node:crypto';
import type { Destination, Probed, Unreadable } from '../../destination/destination.js';
import { readExpiry } from '../../destination/client.js';
import { messageWithDetail } from '../../errors/errors.js';
import { describeRule, findRule, type ExternalIdRule } from '../../streams/external-id-rule.js';

export interface Assumption {
  /** Name of the assumption in docs/service-contract.md. */
  name: string;
  /** `unknown`: the service has no data by which to judge, or only a write would show it. */
  held: 'yes' | 'no' | 'unknown';
  found: string;
  /** True if nothing may be written unless the assumption is right. */
  needed?: boolean;
}

const CONTEXT = { lane: 'incremental' } as const;
const DAY_SECONDS = 24 * 60 * 60;

const assume = (name: string, held: Assumption['held'], found: string): Assumption => ({ name, held, found });

/** Assumptions that only a write could test, reported as unknown. */
export const UNWRITTEN: readonly Assumption[] = Object.entries({
  write: 'whether objects can be written is only shown by the first sync, or --write-probe <number>',
  replace: '--write-probe <number> tests whether an object that is written is replaced whole, or merged',
  'assign-external-ids':
    'off unless service.assignExternalIds; --write-probe <number> tests it on one object without an external id',
}).map(([name, found]) => assume(name, 'unknown', found));

/**
 * Checks the assumptions in a fixed order. An error is reported as a wrong assumption. `written`: results of a test
 * write.
 */
export async function probeAssumptions(
  destination: Destination,
  token: string,
  {
    written = UNWRITTEN,
    now = Date.now(),
  }: { written?: readonly Assumption[] | undefined; now?: number } = {},
): Promise<Assumption[]> {
  const today = Math.floor(now / 1000);
  const window = { from: today - 30 * DAY_SECONDS, to: today + 30 * DAY_SECONDS };
  const probeFind = (find: 'reservations' | 'cancellations') =>
    attempt(`find-${find}`, async () => {
      const { totalResults, results } = await destination.probe(find, window, CONTEXT);
      const found = `${totalResults ?? results.length} in the 30 days before and after today`;
      const held = assume(`find-${find}`, 'yes', found);
      return find === 'reservations' ? [held, judgeBookedObjects(results)] : held;
    });
  return [
    probeToken(token, now),
    ...(await attempt('find-envelope', () => probeObjects(destination, window), { needed: true })),
    ...(await probeFind('reservations')),
    ...(await probeFind('cancellations')),
    ...(await attempt('modified', () => probeModified(destination, now))),
    ...(await attempt('errors', () => probeErrors(destination))),
    ...written,
  ];
}

/** Checks that the service names the objects of reservations by external id, as slotsync compares them. */
function judgeBookedObjects(reservations: readonly Probed['reservations'][]): Assumption {
  const name = 'booked-objects';
  const booked = reservations.flatMap(({ objects }) => objects ?? []);
  const named = booked.filter(
    ({ typeId, objectId }) => typeId !== undefined && objectId !== undefined,
  ).length;
  const counted = `${named} of ${booked.length} booked objects have an external id and a type`;
  if (booked.length === 0) return assume(name, 'unknown', 'there is no booked object to look at yet');
  return named === 0
    ? assume(name, 'no', `${counted}: bookings of our objects would differ`)
    : assume(name, 'yes', `${counted}; the others are not ours`);
}

async function attempt(
  name: string,
  probe: () => Promise<Assumption | Assumption[]>,
  failed: Partial<Assumption> = {},
): Promise<Assumption[]> {
  try {
    return [await probe()].flat();
  } catch (error) {
    return [{ ...assume(name, 'no', messageWithDetail(error)), ...failed }];
  }
}

function probeToken(token: string, now: number): Assumption {
  const expiry = readExpiry(token);
  const unreadable = 'the token does not say when it ends; service.tokenSeconds is used instead';
  return expiry === undefined
    ? assume('token-expiry', 'no', unreadable)
    : assume('token-expiry', 'yes', `the token says it ends in ${Math.round((expiry - now) / 1000)} s`);
}

async function probeObjects(
  destination: Destination,
  window: { from: number; to: number },
): Promise<Assumption[]> {
  const answer = await destination.probe('objects', window, CONTEXT);
  const { next, totalPages, totalResults, results } = answer;
  const envelope =
    next !== undefined
      ? assume('find-envelope', 'yes', 'each page names the next one')
      : typeof totalPages === 'number' && typeof totalResults === 'number'
        ? assume('find-envelope', 'yes', `pages are numbered; ${totalResults} objects in all`)
        : assume(
            'find-envelope',
            'no',
            'the answer says nothing of further pages: one page is taken for all',
          );
  const [object] = results;
  if (!object) {
    const none = 'there is no object to look at yet';
    return [
      envelope,
      ...['object-shape', 'field-search', 'external-ids'].map((name) => assume(name, 'unknown', none)),
    ];
  }
  const missing = (['extId', 'typeId', 'active'] as const).filter(
    (property) => object[property] === undefined,
  );
  const shape =
    missing.length === 0
      ? assume('object-shape', 'yes', 'an object that is read has extId, typeId, active and fields')
      : assume('object-shape', 'no', `an object that is read has no ${missing.join(', ')}`);
  return [
    envelope,
    shape,
    ...(await attempt('field-search', () => probeFieldSearch(destination, object))),
    ...(await attempt('external-ids', () => probeExternalIds(destination, object))),
  ];
}

/** Searches for an object by variants of its external id. A variant that finds it shows what the service ignores. */
async function probeExternalIds(destination: Destination, object: object): Promise<Assumption> {
  const name = 'external-ids';
  const { extId, typeId } = object as { extId?: string | null; typeId?: string | null };
  if (!extId) return assume(name, 'unknown', 'the object that was read has no external id');
  const inOtherCase = extId === extId.toLowerCase() ? extId.toUpperCase() : extId.toLowerCase();
  const spellings = [
    inOtherCase,
    `${extId} `,
    extId.normalize(extId === extId.normalize('NFC') ? 'NFD' : 'NFC'),
  ];
  let rule: ExternalIdRule = {};
  for (const spelling of spellings.filter((one) => one !== extId)) {
    const unreadable: Unreadable = new Map();
    const found = await destination.findObjects([spelling], typeId ?? '', CONTEXT, unreadable);
    if (found.has(spelling) || unreadable.has(spelling)) rule = { ...rule, ...findRule(extId, spelling) };
  }
  const { externalIds = {} } = destination;
  const isSaid = Object.entries(rule).every(([step, as]) => externalIds[step as keyof ExternalIdRule] === as);
  if (isSaid) return assume(name, 'yes', 'the service compares them as service.externalIds says');
  const setting = describeRule({ ...externalIds, ...rule });
  return assume(
    name,
    'no',
    `the service finds an object by another spelling; set service.externalIds to ${setting}`,
  );
}

/** Searches for an object by a value that it has, and by a value that no object has. */
async function probeFieldSearch(
  destination: Destination,
  { typeId, fields }: Probed['objects'],
): Promise<Assumption> {
  const name = 'field-search';
  const field = fields.find(({ values }) => (values?.[0] ?? '') !== '');
  const value = field?.values?.[0];
  if (typeof typeId !== 'string' || field === undefined || value === undefined)
    return assume(name, 'unknown', 'the object that was read has no value to look for');
  const remedy = destination.searchesByFields ? '; set service.searchByFields to false' : '';
  const byValue = await destination.probeFields(typeId, field.fieldId, value, CONTEXT);
  if (byValue.found === 0)
    return assume(name, 'no', `a value of ${field.fieldId} that was just read is not found${remedy}`);
  const byNothing = await destination.probeFields(typeId, field.fieldId, `${value} ${randomUUID()}`, CONTEXT);
  if (byNothing.others > 0)
    return assume(name, 'no', `a value that no object has finds objects all the same${remedy}`);
  return assume(name, 'yes', `a value of ${field.fieldId} that was just read is found again`);
}

async function probeModified(destination: Destination, now: number): Promise<Assumption> {
  const ignored = 'the service ignores it: between nightly syncs the whole window is read instead';
  return (await destination.honoursModified(now, CONTEXT))
    ? assume('modified', 'yes', 'asked for bookings changed in the future, the service answers none')
    : assume('modified', 'no', ignored);
}

async function probeErrors(destination: Destination): Promise<Assumption> {
  const foreign =
    "an error's body is not JSON, so it is taken for a gateway's; if it is the service's: service.errorBodies 'any'";
  switch (await destination.probeErrors(CONTEXT)) {
    case 'json':
      return assume('errors', 'yes', 'the service refuses in JSON');
    case 'other':
      return assume('errors', 'no', foreign);
    case undefined:
      return assume('errors', 'unknown', 'the service refused nothing, or service.errorBodies is any');
  }
}
