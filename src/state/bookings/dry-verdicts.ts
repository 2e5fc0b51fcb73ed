// The verdicts of a dry run: kept in memory, above those of the tables, of which nothing is changed. A transaction that is
// rolled back would stay open for as long as both sides are read, and nothing in the whole database could be cleaned up
// meanwhile.
import type { Queries } from '../database.js';
import type { Verdict } from '../schema.js';
import {
  readCancellations,
  readUnmetCancellations,
  type KnownCancellation,
  type SeenCancellation,
} from './cancellations.js';
import {
  readKnownBookings,
  readUnmetBookings,
  UNREMARKABLE,
  type KnownBooking,
} from './read-reservations.js';
import type { VerdictStore } from './verdict-store.js';
import { findChanged, presentBookings, type MatchedBooking } from './write-reservations.js';

interface Met extends KnownBooking {
  hasProblem: boolean;
  /** As text; undefined when nothing differs. */
  differs: string | undefined;
}

/** Keeps verdicts until the process ends: some hundred bytes for each booking. `named`: discrepancies that can be listed. */
export function holdVerdicts(db: Queries, named: number): VerdictStore {
  /** What this run has met, by key; undefined: it was forgotten. */
  const met = new Map<string, Met | undefined>();
  const cancellations = new Map<number, SeenCancellation | undefined>();
  const discrepancies = new Map<string, MatchedBooking>();
  /** Keys with a change that the history would have. */
  const changed = new Set<string>();
  let events = 0;

  const noteEvents = (keys: readonly string[]) => {
    events += keys.length;
    for (const key of keys) changed.add(key);
  };

  async function forget(keys: readonly string[]): Promise<void> {
    const stored = await readKnownBookings(db, {
      keys: keys.filter((key) => !met.has(key)),
      destinationIds: [],
    });
    noteEvents([...stored.map(({ key }) => key), ...keys.filter((key) => met.get(key))]);
    for (const key of keys) {
      met.set(key, undefined);
      discrepancies.delete(key);
    }
  }

  async function meet(bookings: readonly MatchedBooking[]): Promise<void> {
    const again = bookings.filter(({ key }) => met.has(key));
    const first = bookings.filter(({ key }) => !met.has(key));
    noteEvents(again.filter((booking) => isChange(met.get(booking.key), booking)).map(({ key }) => key));
    noteEvents(await findChanged(db, first));
    for (const booking of bookings) {
      const { key, externalId = null, destinationId = null, verdict, problem } = booking;
      const hasProblem = problem !== undefined;
      met.set(key, { key, externalId, destinationId, verdict, hasProblem, differs: differsOf(booking) });
      discrepancies.delete(key);
      const isRestored = verdict === 'restored_there';
      if ((!isUnremarkable(verdict) || hasProblem) && (!isRestored || changed.has(key)))
        discrepancies.set(key, booking);
    }
    if (discrepancies.size > 2 * named) dropLatest();
  }

  function dropLatest(): void {
    const beginOf = ({ beginHere, beginThere }: MatchedBooking) => beginHere ?? beginThere ?? Infinity;
    const compare = (a: MatchedBooking, b: MatchedBooking) =>
      beginOf(a) === beginOf(b)
        ? Buffer.compare(Buffer.from(a.key), Buffer.from(b.key))
        : beginOf(a) - beginOf(b);
    for (const { key } of [...discrepancies.values()].toSorted(compare).slice(named))
      discrepancies.delete(key);
  }

  return {
    async readKnown(wanted) {
      const stored = await readKnownBookings(db, wanted);
      const [keys, ids] = [new Set(wanted.keys), new Set<number | null>(wanted.destinationIds)];
      const own = [...met.values()].filter(
        (one) => one !== undefined && (keys.has(one.key) || ids.has(one.destinationId)),
      );
      return [...stored.filter(({ key }) => !met.has(key)), ...own.filter((one) => one !== undefined)];
    },

    async readUnmet(window, { after, limit }) {
      for (let from = after; ;) {
        const page = await readUnmetBookings(db, null, window, { after: from, limit });
        const unmet = page.filter(({ key }) => !met.has(key));
        const last = page.at(-1);
        if (unmet.length > 0 || !last) return unmet;
        from = last.key;
      }
    },

    async readCancellations(wanted) {
      const stored = await readCancellations(db, null, wanted);
      const ids = new Set<number | undefined>(wanted.reservationIds);
      const extIds = new Set<string | undefined>(wanted.extIds);
      const own = [...cancellations.values()].flatMap((one): KnownCancellation[] => {
        if (!one || !(ids.has(one.reservationId) || extIds.has(one.extId))) return [];
        const { id, extId: externalId = null, reservationId = null } = one;
        return [{ id, externalId, reservationId, isMet: true }];
      });
      return [...stored.filter(({ id }) => !cancellations.has(id)), ...own];
    },

    async readUnmetCancellations(window, { after, limit }) {
      for (let from = after; ;) {
        const page = await readUnmetCancellations(db, null, window, { after: from, limit });
        const unmet = page.filter((id) => !cancellations.has(id));
        const last = page.at(-1);
        if (unmet.length > 0 || last === undefined) return unmet;
        from = last;
      }
    },

    async keep({ seen = [], goneIds = [], forgotten = [], matched = [] }) {
      for (const { id, extId, reservationId, cancelledAt, begin, end } of seen)
        cancellations.set(id, { id, extId, reservationId, cancelledAt, begin, end });
      for (const id of goneIds) cancellations.set(id, undefined);
      await forget(forgotten);
      await meet(matched);
    },

    async count() {
      const verdicts: Partial<Record<Verdict, number>> = {};
      let problems = 0;
      for (const one of met.values()) {
        if (!one) continue;
        verdicts[one.verdict] = (verdicts[one.verdict] ?? 0) + 1;
        if (one.hasProblem) problems += 1;
      }
      return { verdicts, problems, events };
    },

    listDiscrepancies: (limit) => presentBookings(db, [...discrepancies.values()], limit),
  };
}

const isUnremarkable = (verdict: Verdict) => UNREMARKABLE.includes(verdict);
const differsOf = ({ differs }: MatchedBooking) => differs && JSON.stringify(differs);

/** What the history would have a row for. */
function isChange(before: Met | undefined, booking: MatchedBooking): boolean {
  if (!before) return !isUnremarkable(booking.verdict);
  return before.verdict !== booking.verdict || before.differs !== differsOf(booking);
}
