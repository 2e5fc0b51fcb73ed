// A dialect for a service with other names: objects are items with a `key`, finds follow a cursor, a write is answered in the
// order of its request, ids are UUIDs, times are milliseconds. `keyed.sandbox.ts` plays that service.
import { defineDialect, type Filter, type Json, type Kind, type PutObject } from 'slotsync';

interface Named {
  ref: string;
  key: string | null;
  title?: string;
}

interface Item extends Named {
  kind: string;
  state: 'enabled' | 'disabled';
  attributes: Record<string, string[]>;
}

interface Booking extends Named {
  from: number;
  until: number;
  marks: string[];
  items: { kind: string; key: string | null }[];
  attributes: Record<string, string[]>;
  /** The booking that a withdrawal ends. */
  booking?: string;
  withdrawnAt?: number;
}

const LISTS: Record<Kind, string> = {
  types: 'kinds',
  fields: 'attributes',
  objects: 'items',
  reservations: 'bookings',
  cancellations: 'withdrawals',
};

function toWhere(filter: Filter): object {
  switch (filter.by) {
    case 'none':
      return {};
    case 'extIds':
      return { keys: filter.extIds };
    case 'ids':
      return { refs: filter.ids };
    case 'type':
      return { kind: filter.typeId };
    case 'fields':
      return {
        kind: filter.typeId,
        attributes: Object.fromEntries(filter.fields.map(({ fieldId, values }) => [fieldId, values])),
      };
    case 'window':
      return { overlaps: { from: filter.from, until: filter.to } };
    case 'modified':
      return { changed: { from: filter.from, until: filter.to } };
    case 'upcoming':
      return {
        overlaps: { from: filter.from, until: filter.to },
        items: filter.extIds.map((key) => ({ kind: filter.typeId, key })),
      };
  }
}

const toFields = (attributes: Record<string, string[]>) =>
  Object.entries(attributes).map(([fieldId, values]) => ({ fieldId, values }));

function readNamed(found: Json) {
  const { ref, key, title } = found as unknown as Named;
  return { id: ref, extId: key, name: title };
}

function readBooking(found: Json) {
  const { ref, key, from, until, marks, items, attributes } = found as unknown as Booking;
  return {
    id: ref,
    extId: key ?? undefined,
    begin: from,
    end: until,
    status: marks,
    objects: items.map((item) => ({ typeId: item.kind, objectId: item.key ?? undefined })),
    fields: toFields(attributes),
  };
}

/** Properties that are not understood go back as they were read. */
const writeItem = ({ extId, typeId, active, fields, carried }: PutObject) => ({
  ...carried,
  key: extId,
  kind: typeId,
  state: active ? 'enabled' : 'disabled',
  attributes: Object.fromEntries(fields.map(({ fieldId, values }) => [fieldId, values])),
});

export default defineDialect({
  authenticate: {
    ask: ({ key, organizationId, region }) => ({
      method: 'POST',
      path: '/sign-in',
      headers: {},
      body: { client: organizationId, secret: key, region },
    }),
    read: (body) => body['access'] as string,
    headers: (token) => ({ 'x-access': token }),
  },
  find: {
    ask: ({ kind, filter, limit, cursor }) => ({
      method: 'POST',
      path: `/search/${LISTS[kind]}`,
      body: { where: toWhere(filter), take: limit, after: cursor ?? null },
    }),
    read(body) {
      const { data, after } = body as { data: unknown[]; after: string | null };
      return { results: data, next: after };
    },
  },
  type: { read: readNamed },
  field: { read: readNamed },
  object: {
    read(found) {
      const { ref, key, kind, state, attributes, ...carried } = found as unknown as Item;
      return {
        id: ref,
        extId: key,
        typeId: kind,
        active: state === 'enabled',
        fields: toFields(attributes),
        carried: { ...carried },
      };
    },
    identify: readNamed,
  },
  reservation: { read: readBooking },
  cancellation: {
    read(found) {
      const { booking, withdrawnAt } = found as unknown as Booking;
      return { ...readBooking(found), reservationId: booking, cancelledAt: withdrawnAt };
    },
  },
  write: {
    method: 'POST',
    path: '/items/bulk',
    body: (objects) => ({ items: objects.map(writeItem) }),
    read(body, sent) {
      const { outcomes = [] } = body as { outcomes?: { ref?: string; code: number; why?: string }[] };
      if (outcomes.length !== sent.length)
        throw new Error(`${outcomes.length} outcomes of ${sent.length} items`);
      return outcomes.map(({ ref, code, why }, at) => ({
        extId: sent[at]?.extId ?? '',
        id: ref,
        status: code,
        reason: why,
      }));
    },
  },
  error: {
    read: (body) => (body as { fault?: { text?: string } }).fault?.text,
    ask: () => ({
      method: 'POST',
      path: '/search/items',
      body: { where: { colour: 'red' }, take: 1, after: null },
    }),
  },
  maintained: ['changedAt'],
});
