// Compares one booking of the mirror (`here`) with its reservation at the service (`there`), and returns the verdict.
// Pure. Each combination has one verdict in docs/reconcile.md, or none if both sides are missing. A missing side was
// confirmed by a search before.
import type { Reservation } from '../../destination/destination.js';
import type { Differences, Verdict } from '../../state/schema.js';
import type { FieldValues } from '../../streams/destination-object.js';
import type { CompareRules } from '../../streams/bookings.js';

/** A booking of the mirror, with the external ids of the booked objects. Times are milliseconds since 1970. */
export interface ResolvedBooking {
  begin: number | undefined;
  end: number | undefined;
  isCancelled: boolean;
  /** External ids of the booked objects that the service has accepted. */
  objects: readonly string[];
  /** Names of booked objects that the service has not accepted. The booking then differs from any reservation. */
  unknownObjects: readonly string[];
  fields: readonly FieldValues[];
}

export type ReservationState = { is: 'standing'; reservation: Reservation } | { is: 'cancelled' | 'absent' };

export interface Sides {
  /** Booking in the mirror, if there is one. `unasked` if the configuration has no bookings. */
  here: ResolvedBooking | 'unasked' | undefined;
  there: ReservationState;
  /** Verdict of the previous comparison. */
  before: Verdict | undefined;
  /** True if the booking was known to be cancelled, but the service has no such cancellation any more. */
  isCancellationGone: boolean;
}

/** Returns the verdict on a booking. Undefined if neither side has the booking. */
export function compareBooking(
  { here, there, before, isCancellationGone }: Sides,
  rules: CompareRules,
): { verdict: Verdict; differs: Differences | undefined } | undefined {
  if (here === 'unasked') return there.is === 'standing' ? only('not_compared') : undefined;
  if (here === undefined) return there.is === 'standing' ? only('unknown_here') : undefined;
  switch (there.is) {
    case 'absent':
      return only(here.isCancelled ? 'agrees_cancelled' : 'missing_there');
    case 'cancelled':
      return only(here.isCancelled ? 'agrees_cancelled' : 'cancelled_there');
    case 'standing': {
      if (here.isCancelled) return only('cancelled_here');
      const differs = findDifferences(here, there.reservation, rules);
      if (differs) return { verdict: 'differs', differs };
      // A restored booking keeps this verdict until one side changes. Otherwise each comparison would report an event.
      const isRestored = isCancellationGone || before === 'cancelled_there' || before === 'restored_there';
      return only(isRestored ? 'restored_there' : 'agrees');
    }
  }
}

/** Returns true if nobody has to act on the booking. */
export function agrees(verdict: Verdict): boolean {
  return ['agrees', 'agrees_cancelled', 'restored_there', 'not_compared'].includes(verdict);
}

const only = (verdict: Verdict) => ({ verdict, differs: undefined });

/** Returns how booking and reservation differ. Undefined if they agree. */
export function findDifferences(
  here: ResolvedBooking,
  there: Reservation,
  rules: CompareRules,
): Differences | undefined {
  const differs: Differences = {};
  if (here.begin !== there.begin) differs.begin = { here: toText(here.begin), there: toText(there.begin) };
  if (here.end !== there.end) differs.end = { here: toText(here.end), there: toText(there.end) };

  const objectsHere = toSet(here.objects);
  const objectsThere = comparedObjects(there, rules);
  if (here.unknownObjects.length > 0 || !areEqual(objectsHere, objectsThere))
    differs.objects = { here: [...objectsHere, ...here.unknownObjects], there: objectsThere };

  const fieldsHere = comparedFields(here.fields, rules);
  const fieldsThere = comparedFields(there.fields, rules);
  const unequal = rules.fields.filter(
    (field) => !areEqual(fieldsHere[field] ?? [], fieldsThere[field] ?? []),
  );
  if (unequal.length > 0)
    differs.fields = { here: pick(fieldsHere, unequal), there: pick(fieldsThere, unequal) };

  if (!there.status.every((status) => rules.status.has(status)))
    differs.status = { here: toSet([...rules.status]), there: toSet(there.status) };
  return Object.keys(differs).length === 0 ? undefined : differs;
}

/** Returns the external ids of a reservation's objects, without types that bookings do not contain. */
function comparedObjects({ objects }: Reservation, { types }: CompareRules): string[] {
  return toSet(objects.filter(({ typeId }) => types.has(typeId)).map(({ objectId }) => objectId));
}

function comparedFields(fields: readonly FieldValues[], rules: CompareRules): Record<string, string[]> {
  const compared = new Set(rules.fields);
  return Object.fromEntries(
    fields
      .filter(({ fieldId }) => compared.has(fieldId))
      .map(({ fieldId, values }) => [fieldId, [...values]]),
  );
}

function pick(fields: Record<string, string[]>, names: readonly string[]): Record<string, string[]> {
  return Object.fromEntries(names.map((name) => [name, fields[name] ?? []]));
}

const toText = (time: number | undefined) => (time === undefined ? null : new Date(time).toISOString());
const toSet = (values: readonly string[]) => [...new Set(values)].toSorted();
const areEqual = (a: readonly string[], b: readonly string[]) =>
  a.length === b.length && a.every((value, at) => value === b[at]);
