// The service of keyed-service.ts, for a rehearsal: slotsync sandbox --speaks examples/dialects/keyed.sandbox.ts
// It answers in that service's words what the sandbox answers in its own.

interface Request {
  method: string;
  path: string;
  headers: Record<string, string | string[] | undefined>;
  json(): unknown;
}

interface Answer {
  status: number;
  body?: unknown;
}

type Json = Record<string, any>; // eslint-disable-line

const FINDS: Record<string, string> = {
  kinds: 'types',
  attributes: 'fields',
  items: 'objects',
  bookings: 'reservations',
  withdrawals: 'cancellations',
};
const EVERY_STATUS = [
  'B_COMPLETE',
  'B_INCOMPLETE',
  'C_CONFIRMED',
  'C_PRELIMINARY',
  'C_PLANNED',
  'C_REQUESTED',
  'C_REJECTED',
];

const seconds = ({ from, until }: { from: number; until: number }) => ({
  startDate: Math.floor(from / 1000),
  endDate: Math.floor(until / 1000),
});
const encode = (page: number) => Buffer.from(`page ${page}`).toString('base64');
const decode = (after: string | null) =>
  after === null ? 1 : Number(Buffer.from(after, 'base64').toString().slice(5));

/** The UUID of a number of the sandbox: its digits in reverse, so that UUIDs ascend in another order than the numbers. */
const toRef = (id: number) => `${reverse(String(id).padStart(8, '0'))}-5afe-4b0b-8000-000000000000`;
const fromRef = (ref: string) => Number(reverse(ref.slice(0, 8)));
const reverse = (text: string) => text.split('').reverse().join('');

function toFilter({ keys, refs, kind, attributes, overlaps, changed, items, ...others }: Json): object {
  if (Object.keys(others).length > 0) return { unknown: others };
  return {
    ...(keys && { extIds: keys }),
    ...(refs && { ids: refs.map(fromRef) }),
    ...(kind && { typeId: kind, sort: 'ASCID' }),
    ...(attributes && {
      fields: {
        exactSearchFields: Object.entries(attributes).map(([fieldId, values]) => ({ fieldId, values })),
      },
    }),
    ...(overlaps && { date: seconds(overlaps) }),
    ...(changed && { modified: seconds(changed) }),
    ...((overlaps ?? changed) && {
      reservationStatus: items ? EVERY_STATUS.slice(0, -1) : EVERY_STATUS,
    }),
    ...(items && {
      searchObjects: items.map((one: Json) => ({ typeId: one['kind'], objectId: one['key'] })),
    }),
  };
}

const toAttributes = (fields: Json[]) =>
  Object.fromEntries(fields.map(({ fieldId, values }) => [fieldId, values]));

type Show = (found: Json) => object;

const showName: Show = ({ id, extId, name }) => ({ ref: toRef(id), key: extId, title: name });

const showBooking: Show = ({ id, extId, begin, end, status, objects, fields, reservationId, cancelled }) => ({
  ref: toRef(id),
  key: extId,
  from: begin * 1000,
  until: end * 1000,
  marks: status,
  items: (objects ?? []).map(({ typeId, objectId }: Json) => ({ kind: typeId, key: objectId })),
  attributes: toAttributes(fields),
  ...(reservationId && { booking: toRef(reservationId), withdrawnAt: cancelled * 1000 }),
});

const SHOWN: Record<string, Show> = {
  types: showName,
  fields: showName,
  objects: ({ id, extId, typeId, active, fields, modified, ...others }) => ({
    ...others,
    ref: toRef(id),
    key: extId,
    kind: typeId,
    state: active ? 'enabled' : 'disabled',
    attributes: toAttributes(fields),
    changedAt: modified * 1000,
  }),
  reservations: showBooking,
  cancellations: showBooking,
};

export default <R extends Request>(native: (request: R) => Answer) =>
  (request: R): Answer => {
    const body = (request.json() ?? {}) as Json;
    /** The sandbox's own answer; `then` makes an answer of it that is not refused. */
    const ask = (
      path: string,
      headers: Json,
      json: unknown,
      then: (answer: Json) => object,
      method = 'POST',
    ) => {
      const typed = { ...request.headers, 'content-type': 'application/json', ...headers };
      const answer = native({ ...request, method, path, headers: typed, json: () => json });
      const given = answer.body as Json;
      if (answer.status >= 300) return { ...answer, body: { fault: { text: given['message'] } } };
      return { status: 200, body: then(given) };
    };
    if (request.path === '/sign-in') {
      const { client, secret, region } = body;
      const headers = { authorization: `Api-Key ${secret}`, 'x-region': region };
      const path = `/v1/organizations/${client}/api-keys/authenticate`;
      return ask(path, headers, undefined, ({ token }) => ({ access: token }));
    }
    const token = { authorization: `Bearer ${String(request.headers['x-access'])}` };
    const kind = FINDS[/^\/v3\/search\/(\w+)$/.exec(request.path)?.[1] ?? ''];
    if (kind) {
      const { where, take, after } = body;
      const find = { idFormat: 'EXTERNAL', ...toFilter(where), page: decode(after), limit: take };
      return ask(`/v1/${kind}/find`, token, find, ({ results, page, totalPages }) => ({
        data: results.map(SHOWN[kind]),
        after: page < totalPages ? encode(page + 1) : null,
      }));
    }
    if (request.path !== '/v3/items/bulk') return { status: 404, body: { fault: { text: 'no such path' } } };
    const objects = body['items'].map(({ key, kind: typeId, state, attributes, ...others }: Json) => ({
      ...others,
      extId: key,
      typeId,
      active: state === 'enabled',
      fields: Object.entries(attributes).map(([fieldId, values]) => ({ fieldId, values })),
    }));
    const put = { idFormat: 'EXTERNAL', objects };
    const outcomesOf = ({ results }: Json) => ({
      outcomes: results.map(({ id, status, message }: Json) =>
        id ? { ref: toRef(id), code: status } : { code: status, why: message },
      ),
    });
    return ask('/v1/objects', token, put, outcomesOf, 'PUT');
  };
