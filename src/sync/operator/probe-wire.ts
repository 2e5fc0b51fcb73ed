// Calls each endpoint that does not write once, and keeps the request, the answer and its meaning. `check --record`
// saves such exchanges without their values, as a contract to compare with later.
import { z } from 'zod';
import type { Destination } from '../../destination/destination.js';
import { messageWithDetail, SlotsyncError } from '../../errors/errors.js';
import { plural } from '../../text/format.js';
import { compareShapes, shapeOf } from '../../text/json-shape.js';

/** A request and its answer. A body that is not JSON is a string. The token request's body is secret: left out. */
export const wireExchange = z.strictObject({
  endpoint: z.string(),
  method: z.string(),
  path: z.string(),
  sent: z.unknown().optional(),
  status: z.int(),
  answered: z.unknown().optional(),
});
export type WireExchange = z.output<typeof wireExchange>;

/** File that `slotsync check --record` writes. In its paths, `{}` replaces the organization's id. */
export const contractSchema = z.strictObject({ version: z.literal(1), exchanges: z.array(wireExchange) });

/** Result of calling an endpoint. `exchange` is undefined if there was no answer. */
export interface Probed {
  endpoint: string;
  exchange?: WireExchange;
  /** Meaning of the answer, in words. */
  understood?: string;
  fault?: { text: string; remedy: string };
}

const CONTEXT = { lane: 'incremental' } as const;
const HALF_WINDOW_SECONDS = 30 * 24 * 60 * 60;

/** Functions of the dialect that make the request and read the answer, for each endpoint. */
export const READERS: Readonly<Record<string, string>> = {
  authenticate: 'authenticate.ask and authenticate.read',
  findTypes: 'find.ask, find.read and type.read',
  findFields: 'find.ask, find.read and field.read',
  findObjects: 'find.ask, find.read and object.read',
  findReservations: 'find.ask, find.read and reservation.read',
  findCancellations: 'find.ask, find.read and cancellation.read',
};

/** Calls all endpoints and yields each result. Stops if the service issues no token. `now`: milliseconds. */
export async function* probeWire(destination: Destination, now = Date.now()): AsyncGenerator<Probed> {
  const today = Math.floor(now / 1000);
  const window = { from: today - HALF_WINDOW_SECONDS, to: today + HALF_WINDOW_SECONDS };
  const names = (all: readonly { extId: string | undefined }[]) => {
    const [first] = all.flatMap(({ extId }) => extId ?? []);
    return `${all.length}${first === undefined ? ', none with an external id' : `, such as ${first}`}`;
  };
  const bookings = async (kind: 'reservations' | 'cancellations') => {
    const { results, totalResults } = await destination.probe(kind, window, CONTEXT);
    const [first] = results;
    const counted = `${totalResults ?? results.length} in 60 days`;
    if (!first) return counted;
    const objects = plural(first.objects?.length ?? 0, 'object');
    return `${counted}; the first: ${first.extId ?? 'no external id'}, ${describeTime(first.begin)} to ${describeTime(first.end)}, ${objects}`;
  };
  const asks: Record<string, () => Promise<string>> = {
    authenticate: async () => ((await destination.authenticate()) ? 'a token' : ''),
    findTypes: async () => names(await destination.findTypes(CONTEXT)),
    findFields: async () => names(await destination.findFields(CONTEXT)),
    findObjects: async () => {
      const { results, totalResults } = await destination.probe('objects', window, CONTEXT);
      const [first] = results;
      const counted =
        totalResults === undefined ? 'how many there are is not said' : `${totalResults} in all`;
      if (!first) return counted;
      const { id, extId, typeId, active, fields, carried } = first;
      const carriedNames =
        Object.keys(carried ?? {})
          .filter((name) => !destination.maintained.has(name))
          .join(', ') || 'nothing';
      return `${counted}; the first: number ${id}, ${extId ?? 'no external id'}, type ${typeId ?? 'not said'}, ${active === false ? 'inactive' : 'active'}, ${plural(fields.length, 'field')}; kept as it is: ${carriedNames}`;
    },
    findReservations: () => bookings('reservations'),
    findCancellations: () => bookings('cancellations'),
  };
  let seen: { exchange?: WireExchange } = {};
  destination.observe(({ call: { endpoint, method, path, query, body }, status, body: text }) => {
    seen.exchange = {
      endpoint,
      method,
      path: endpoint === 'authenticate' ? path : path + query,
      sent: endpoint === 'authenticate' ? undefined : body,
      status,
      answered: parsed(text),
    };
  });
  for (const [endpoint, ask] of Object.entries(asks)) {
    seen = {};
    try {
      const understood = await ask();
      yield { endpoint, understood, ...seen };
    } catch (error) {
      const remedy = error instanceof SlotsyncError ? error.remedy : '';
      yield { endpoint, fault: { text: messageWithDetail(error), remedy }, ...seen };
      if (endpoint === 'authenticate') return;
    }
  }
}

/** Compares an exchange with a recorded one. Returns the differences in status and in the shape of the answer. */
export function compareExchange(was: WireExchange, is: WireExchange): string[] {
  const status = was.status === is.status ? [] : [`the status was ${was.status}, is ${is.status}`];
  return [...status, ...compareShapes(shapeOf(was.answered), shapeOf(is.answered))];
}

/**
 * Replaces values by placeholders, so that exchanges can be published. Equal texts stay equal, numbers keep their
 * length and order, and dates get another year. Keeps `names` and numbers below 1000.
 */
export function withoutValues(
  exchanges: readonly WireExchange[],
  { names, organizationId }: { names: ReadonlySet<string>; organizationId: string },
): WireExchange[] {
  const texts = new Map<string, string>();
  const numbers = new Map<number, number>();
  const isText = (value: unknown): value is string => typeof value === 'string';
  const isLarge = (value: number) => Number.isInteger(value) && value >= 1000;
  const all = exchanges.flatMap(({ answered }) => leavesOf(answered));
  const large = all.flatMap((leaf) =>
    isText(leaf)
      ? /^\d{4,15}$/.test(leaf)
        ? Number(leaf)
        : []
      : typeof leaf === 'number' && isLarge(leaf)
        ? leaf
        : [],
  );
  const ranks = new Map<number, number>();
  for (const value of [...new Set(large)].toSorted((a, b) => a - b)) {
    const digits = String(value).length;
    const rank = (ranks.get(digits) ?? 0) + 1;
    ranks.set(digits, rank);
    numbers.set(value, 10 ** (digits - 1) + rank);
  }
  function replaced(value: unknown): unknown {
    if (Array.isArray(value)) return value.map(replaced);
    if (typeof value === 'number') return numbers.get(value) ?? (Number.isInteger(value) ? value : 0.5);
    if (isText(value)) {
      if (names.has(value) || value === '') return value;
      if (/^\d{1,15}$/.test(value)) return String(numbers.get(Number(value)) ?? value);
      if (/^\d{4}-\d\d-\d\d(?:$|T)/.test(value)) return `2001${value.slice(4)}`;
      const text = texts.get(value) ?? `text-${texts.size + 1}`;
      texts.set(value, text);
      return text;
    }
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([name, of]) => [name, replaced(of)]));
  }
  const id = encodeURIComponent(organizationId);
  return exchanges.map((exchange) => ({
    ...exchange,
    path: exchange.path
      .split('/')
      .map((part) => (part === id ? '{}' : part))
      .join('/'),
    answered: replaced(exchange.answered),
  }));
}

function leavesOf(value: unknown): unknown[] {
  if (typeof value !== 'object' || value === null) return [value];
  return Object.values(value).flatMap(leavesOf);
}

const describeTime = (milliseconds: number) =>
  new Date(milliseconds).toISOString().slice(0, 16).replace('T', ' ');

function parsed(text: string): unknown {
  try {
    return text === '' ? undefined : JSON.parse(text);
  } catch {
    return text;
  }
}
