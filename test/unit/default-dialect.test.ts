import { describe, expect, it } from 'vitest';
import { createRedaction } from '../../src/destination/failure-text.js';
import { findExcess } from '../../src/destination/read-body.js';
import { completeDialect, DEFAULT_DIALECT } from '../../src/dialect/complete-dialect.js';
import type { Filter, Json, PutObject } from '../../src/dialect/dialect.js';
import { readReason } from '../../src/dialect/default-dialect.js';
import { readFailure, toDetail, type ErrorBodies } from '../../src/destination/failure-text.js';
import { RESERVATION_STATUSES } from '../../src/streams/config-schema.js';
import { html } from '../../src/text/html.js';

const dialect = DEFAULT_DIALECT;

/** Returns the fault of a part of an answer, or undefined if the part is understood. */
function faultOf(read: (given: Json, more: never) => unknown, given: unknown): string | undefined {
  try {
    read(given as Json, undefined as never);
    return undefined;
  } catch (error) {
    expect(error).toMatchObject({ name: 'NotUnderstood' });
    return (error as Error).message;
  }
}

const reading = (body: string, errorBodies: ErrorBodies) =>
  readFailure(body, { errorBodies, readReason, redact: (text) => text });

describe('the reason that the service names for a failure', () => {
  it.each([
    ['{"message":"mandatory field missing","code":12}', 'mandatory field missing'],
    ['{"error":"Bad Request"}', 'Bad Request'],
    ['{"error":{"message":"unknown type","at":3}}', 'unknown type'],
    ['{"error":"Bad Request","message":"no such field"}', 'no such field'],
    ['{"type":"about:blank","title":"Not valid","detail":"too long"}', 'Not valid; too long'],
    ['{"status":400,"detail":"no such type"}', 'no such type'],
    ['{"message":"Not valid","errors":["no name","no type"]}', 'Not valid; no name; no type'],
    ['{"errors":[{"message":"a"},{"detail":"b","pointer":"#/typeId"},{"message":"a"},null,7]}', 'a; b'],
    ['{"title":"x","errors":{"name":["is needed","is text"]}}', 'x; name: is needed; name: is text'],
    ['{"error":{"code":400,"message":"no name","errors":[{"message":"no name"}]}}', 'no name'],
    ['{"reason":{"code":"E17"}}', '{"reason":{"code":"E17"}}'],
    ['{"message":"","errors":[]}', '{"message":"","errors":[]}'],
    ['{"message":12}', '{"message":12}'],
    ['["a","b"]', '["a","b"]'],
  ])('is read from JSON whose shape is known, which is shown otherwise: %s', (body, words) => {
    expect(reading(body, 'json')).toBe(words);
    expect(reading(body, 'any')).toBe(words);
  });

  it.each([
    [
      'a page of HTML',
      '<!DOCTYPE html>\n<style>b { color: red }</style><script>x < 1</script> <b class="x">Bad   gateway</b>\n<p',
      'Bad gateway <p',
    ],
    ['a line of text', 'default backend - 404', 'default backend - 404'],
    ['JSON that is a text', '"no"', '"no"'],
    ['JSON that was cut off', '{"message":"no such', '{"message":"no such'],
    ['no body', '', ''],
  ])('is undefined for %s, unless the configuration takes every body as the service’s', (_, body, words) => {
    expect(reading(body, 'json')).toBeUndefined();
    expect(reading(body, 'any')).toBe(words);
  });

  it('is redacted in linear time with many backslashes and short secrets', () => {
    const { add, redact } = createRedaction();
    for (const secret of ['a+b/c', 'x']) add(secret);
    for (const text of ['\\'.repeat(500_000), 'x'.repeat(500_000), `${'\\'.repeat(200_000)}u002B`])
      expect(toDetail(text, redact).length).toBeLessThanOrEqual(500);
    expect(redact(String.raw`a\u002Bb\\\/c, a\\u002bb%2Fc, \q \\`)).toBe(
      String.raw`[secret], [secret], \q \\`,
    );
  });

  const SECRET = 'sk+live/4f<9a"&\'=?~Z';
  const bytes = (before: string) => Buffer.from(`${before}${SECRET} and more`);
  const hexOf = (text: string) => Buffer.from(text).toString('hex');
  const entity = (text: string, of: (code: number) => string) =>
    Array.from(text)
      .map((one) => of(one.codePointAt(0) ?? 0))
      .join('');
  it.each([
    ['plain', SECRET],
    ['in an address', encodeURIComponent(SECRET)],
    ['in an address in an address', encodeURIComponent(encodeURIComponent(SECRET))],
    ['in JSON', JSON.stringify(SECRET).slice(1, -1)],
    ['in JSON in JSON', JSON.stringify(JSON.stringify(SECRET)).slice(3, -3)],
    ['in JSON as code points', entity(SECRET, (code) => `\\u${code.toString(16).padStart(4, '0')}`)],
    ['in HTML', String(html`${SECRET}`)],
    ['in HTML in HTML', String(html`${String(html`${SECRET}`)}`)],
    ['in HTML as numbers', entity(SECRET, (code) => `&#${code};`)],
    ['in HTML as hexadecimal numbers', entity(SECRET, (code) => `&#x${code.toString(16)};`)],
    ['in hexadecimal', hexOf(SECRET)],
    ['in upper hexadecimal, within more', hexOf(`Bearer ${SECRET}!`).toUpperCase()],
    ['in base64', bytes('').toString('base64')],
    ['in base64, one byte later', bytes('a').toString('base64')],
    ['in base64, two bytes later', bytes('ab').toString('base64')],
    ['in base64 of an address', bytes('Bearer ').toString('base64url')],
    ['in base64, in an address', encodeURIComponent(bytes('Api-Key ').toString('base64'))],
  ])('is redacted when it holds a secret %s', (_, shown) => {
    const { add, redact } = createRedaction();
    add(SECRET);
    const redacted = redact(`refused: ${shown}.`);
    expect(redacted).toMatch(/^refused: .*\[secret\].*\.$/);
    // Nothing of it is left: the longest part of what was shown that is still there is of what was beside it.
    const left = redacted.replace('refused: ', '').replace('[secret]', '').replace('.', '');
    for (const form of ['utf8', 'base64', 'hex'] as const)
      expect(Buffer.from(left, form).toString('latin1')).not.toMatch(/live|4f<|~Z|sk\+/);
  });

  it.each([
    ['backwards', Array.from(SECRET).reverse().join('')],
    ['in hexadecimal with spaces', (hexOf(SECRET).match(/../g) ?? []).join(' ')],
    ['in base64 of base64', Buffer.from(Buffer.from(SECRET).toString('base64')).toString('base64')],
    ['cut into two', `${SECRET.slice(0, 8)} ${SECRET.slice(8)}`],
    ['in lower case', SECRET.toLowerCase()],
  ])('is not redacted when it holds a secret %s, as docs/security.md says', (_, shown) => {
    const { add, redact } = createRedaction();
    add(SECRET);
    expect(redact(shown)).toBe(shown);
  });

  it('is cut to 500 characters', () => {
    expect(reading('x'.repeat(10_000), 'any')).toHaveLength(500);
    expect(reading(JSON.stringify({ message: 'x'.repeat(10_000) }), 'json')).toHaveLength(500);
  });
});

describe('the limit of levels and values in JSON', () => {
  it('counts levels and values outside texts only', () => {
    const nested = (levels: number) => '[{"a":'.repeat(levels / 2) + '1' + '}]'.repeat(levels / 2);
    expect(findExcess(nested(100))).toBeUndefined();
    expect(findExcess(nested(102))).toMatchObject({
      what: 'nested more than 100 levels deep',
      isLarge: false,
    });
    const texts = ['['.repeat(200), `"${'{'.repeat(200)}\\`, '\\"' + '['.repeat(200), ','.repeat(5_000_000)];
    expect(findExcess(JSON.stringify(texts))).toBeUndefined();
    expect(findExcess(`[${'[],'.repeat(200)}[]]`)).toBeUndefined();
    expect(findExcess('["\\')).toBeUndefined();
    for (const value of ['1', '{}'])
      expect(findExcess(`[${`${value},`.repeat(4_000_000)}1]`)).toMatchObject({
        what: 'of more than 4 million values',
      });
  });
});

describe('the answer of a find', () => {
  const fields = [{ fieldId: 'f', values: ['v'] }];
  const room = { id: 4711, extId: 'room_1', typeId: 'room', active: true, fields };
  const readObject = (given: Json) => dialect.object.read(given, true);

  it('has results, and may have unknown properties', () => {
    const more = { results: [room], page: 1, totalPages: 1, totalResults: 1, limit: 1000, took: 3 };
    expect(faultOf(dialect.find.read, more)).toBeUndefined();
    expect(faultOf(dialect.find.read, { results: [], page: null })).toBeUndefined();
    for (const other of [{}, { results: {} }, [], null, undefined])
      expect(faultOf(dialect.find.read, other)).toBeDefined();
  });

  it('may leave out everything of an object except its id and its fields', () => {
    expect(faultOf(readObject, { id: 1, fields: [] })).toBeUndefined();
    const empty = { id: 1, extId: null, typeId: null, active: null, fields: [] };
    expect(faultOf(readObject, empty)).toBeUndefined();
    expect(dialect.object.read({ ...room, id: '4711', created: 1 }, false).id).toBe('4711');
  });

  it.each<[string, unknown]>([
    ['without an id', { extId: 'room_1', fields: [] }],
    ['without fields, whose replacement would empty them', { id: 1, extId: 'room_1' }],
    ['with a value that is no text', { ...room, fields: [{ fieldId: 'f', values: [48] }] }],
    ['with a field without its id', { ...room, fields: [{ values: ['v'] }] }],
    ['that is active as a text', { ...room, active: 'yes' }],
    ['that is null', null],
  ])('is not understood with an object %s', (_, value) => {
    expect(faultOf(readObject, value)).toBeDefined();
  });

  it('names the place of the first fault only', () => {
    const fields = Array.from({ length: 100_000 }, () => ({ fieldId: 1 }));
    expect(faultOf(readObject, { ...room, fields })).toMatch(/^fields\.0\.fieldId: /);
  });

  it('identifies an object that is not understood', () => {
    expect(dialect.object.identify({ ...room, fields: 7 })).toEqual({ id: '4711', extId: 'room_1' });
  });

  const reservations = dialect.reservation.read;
  it('needs begin and end of a reservation', () => {
    expect(faultOf(reservations, { id: 1, begin: 1_700_000_000, end: 1_700_003_600 })).toBeUndefined();
    expect(faultOf(reservations, { id: 1, begin: 1_700_000_000 })).toMatch(/^end: /);
    expect(faultOf(reservations, { id: 1, begin: '2025-11-20', end: '2025-11-20' })).toMatch(/^begin: /);
    expect(faultOf(reservations, { id: null, begin: 1, end: 2 })).toMatch(/^id: /);
    expect(faultOf(reservations, { id: 1, begin: 1, end: 2, objects: 'room_A' })).toMatch(/^objects: /);
  });

  it('accepts odd values that people entered in reservations and cancellations', () => {
    const odd = {
      id: 1,
      extId: 4711,
      begin: 1,
      end: 2,
      status: ['X_OWN', 7],
      objects: [
        { typeId: 'room', objectId: 'room_A' },
        { typeId: 'room', objectId: null },
        { objectId: 7 },
        null,
      ],
      fields: [{ fieldId: 'res.title', values: ['Title', 48] }, { fieldId: null, values: null }, 'x'],
    };
    const one = dialect.cancellation.read(odd);
    expect(one).toMatchObject({
      extId: undefined,
      status: ['X_OWN', '7'],
      fields: [{ fieldId: 'res.title', values: ['Title', '48'] }, { fieldId: undefined }, {}],
    });
    expect(one.objects?.map(({ objectId }) => objectId)).toEqual(['room_A', undefined, undefined, undefined]);
    for (const objects of [null, undefined, []])
      expect(faultOf(reservations, { ...odd, objects })).toBeUndefined();
  });

  it('may name the reservation and the time of a cancellation', () => {
    const cancellation = { id: 1, begin: 1, end: 2 };
    expect(faultOf(dialect.cancellation.read, cancellation)).toBeUndefined();
    expect(dialect.cancellation.read({ ...cancellation, reservationId: 7, cancelled: 3 })).toMatchObject({
      reservationId: '7',
      cancelledAt: 3000,
      begin: 1000,
    });
    expect(faultOf(dialect.cancellation.read, { ...cancellation, cancelled: 'yesterday' })).toBeDefined();
  });

  it('is refused with reservation times in milliseconds, unless the dialect declares them', () => {
    const found = { id: 1, begin: 1_796_104_800_000, end: 1_796_112_000_000 };
    expect(faultOf(reservations, found)).toMatch(/Unix seconds expected/);
    const other = completeDialect({ times: 'milliseconds' }, 'x.ts');
    expect(other.reservation.read(found)).toMatchObject({ begin: Date.UTC(2026, 11, 1, 6) });
    const filter = { by: 'window', from: 1000, to: 2000 } as const;
    const { body } = other.find.ask({ kind: 'reservations', filter, page: 1, limit: 1 });
    expect(body).toMatchObject({ date: { startDate: 1000, endDate: 2000 } });
  });
});

describe('the answer of a PUT', () => {
  const read = (given: unknown) => dialect.write.read(given, [], 200);

  it('names each object, its status, and the reason of a refusal', () => {
    const refused = {
      status: 400,
      id: null,
      message: null,
      title: 'Not valid',
      errors: [{ detail: 'no name' }],
    };
    const results = [
      { extId: 'room_1', status: 200, id: 1, warnings: [] },
      { extId: 'room_2', ...refused },
      { extId: 'room_3', status: 409 },
    ];
    expect(read({ results, took: 1 })).toEqual([
      { extId: 'room_1', status: 200, id: '1', reason: undefined },
      { extId: 'room_2', status: 400, id: undefined, reason: 'Not valid; no name' },
      { extId: 'room_3', status: 409, id: undefined, reason: undefined },
    ]);
  });

  it.each<[string, unknown]>([
    ['no results', { ok: true }],
    ['a result without an external id', { results: [{ status: 200 }] }],
    ['a result without a status', { results: [{ extId: 'room_1' }] }],
    ['a status that is text', { results: [{ extId: 'room_1', status: 'OK' }] }],
    ['no body', undefined],
  ])('is not understood with %s', (_, value) => {
    expect(faultOf(read, value)).toBeDefined();
  });
});

describe('the answer to authenticating', () => {
  it('needs only a token', () => {
    expect(faultOf(dialect.authenticate.read, { token: 'x', expires: 1 })).toBeUndefined();
    for (const answer of [{}, { token: '' }, { token: null }, 'x', null, undefined])
      expect(faultOf(dialect.authenticate.read, answer)).toBe('it holds no token');
  });
});

it('an object that was read keeps unknown properties when it is written', () => {
  const found = {
    extId: 'room_1',
    typeId: 'room',
    active: false,
    fields: [{ fieldId: 'f', values: ['v'], locked: true }],
    members: [{ objectId: 7 }],
    relations: null,
  };
  const { id, ...read } = dialect.object.read({ ...found, id: 7 }, true);
  expect(id).toBe('7');
  expect(dialect.write.body([read as PutObject])).toEqual({ idFormat: 'EXTERNAL', objects: [found] });
  const listed = dialect.object.read({ ...found, id: 7, carried: 1 }, false);
  expect(JSON.stringify(listed)).not.toMatch(/members|carried/);
});

describe('a request', () => {
  const page = { page: 2, limit: 1000 };
  const ask = (filter: Filter) => dialect.find.ask({ kind: 'reservations', filter, ...page });

  it('filters by external ids alone, because the service would answer the union', () => {
    expect(ask({ by: 'extIds', extIds: ['a'] })).toEqual({
      method: 'POST',
      path: '/reservations/find',
      body: { idFormat: 'EXTERNAL', extIds: ['a'], ...page },
    });
  });

  const UUID = '0b5e1c9a-7f3d-4c1e-8a2b-9d6f00a1b2c3';
  /** An id in an answer, as it is stored, and as a dialect whose `ids` are numbers sends it. */
  it.each<[unknown, string, unknown]>([
    [4711, '4711', 4711],
    [0, '0', 0],
    [-1, '-1', -1],
    [9_007_199_254_740_991, '9007199254740991', 9_007_199_254_740_991],
    ['4711', '4711', 4711],
    ['007', '007', '007'],
    ['9007199254740993', '9007199254740993', '9007199254740993'],
    ['1e3', '1e3', '1e3'],
    ['NaN', 'NaN', 'NaN'],
    [UUID, UUID, UUID],
    ['Räume/1 ', 'Räume/1 ', 'Räume/1 '],
  ])('sends the service’s own id %j in its original form', (given, kept, sent) => {
    const { id } = dialect.object.identify({ id: given });
    expect(id).toBe(kept);
    expect(ask({ by: 'ids', ids: [id] }).body).toEqual({ idFormat: 'EXTERNAL', ids: [sent], ...page });
    const named = { id, extId: 'room_1', typeId: 'room', active: true, fields: [] };
    expect(dialect.object.write(named)).toMatchObject({ id: sent });
    const texts = completeDialect({ ids: 'texts' }, 'x.ts');
    expect(texts.object.write(named)).toMatchObject({ id: kept });
    const asked = texts.find.ask({ kind: 'objects', filter: { by: 'ids', ids: [id] }, ...page });
    expect(asked.body).toMatchObject({ ids: [kept] });
  });

  it.each<[string, unknown]>([
    ['null', null],
    ['undefined', undefined],
    ['an empty text', ''],
    ['a fraction', 1.5],
    ['an integer that was rounded', 9_007_199_254_740_992],
    ['an object', { value: 1 }],
    ['a list', ['1']],
    ['true', true],
    ['a text that no index takes', 'x'.repeat(2000)],
    ['a text that the state cannot hold', 'a\0b'],
  ])('is not made from an answer with %s as an id', (_, id) => {
    const says = 'id: expected an integer up to 2^53, or a text of at most 1024 bytes that is not empty';
    expect(faultOf(dialect.object.identify, { id })).toBe(says);
    const own = completeDialect({ object: { identify: () => ({ id: id as string }) } }, 'x.ts');
    expect(faultOf(own.object.identify, {})).toContain(says.slice(4));
  });

  it('names every reservation status, because the service hides a status that is not named', () => {
    const reservationStatus =
      'B_COMPLETE B_INCOMPLETE C_CONFIRMED C_PRELIMINARY C_PLANNED C_REQUESTED C_REJECTED'.split(' ');
    expect(RESERVATION_STATUSES).toEqual(reservationStatus);
    expect(ask({ by: 'window', from: 1000, to: 2000 }).body).toMatchObject({
      date: { startDate: 1, endDate: 2 },
      reservationStatus,
    });
    expect(ask({ by: 'modified', from: 1000, to: 2000 }).body).toMatchObject({
      modified: { startDate: 1, endDate: 2 },
      reservationStatus,
      sort: 'ASCID',
    });
  });

  it('authenticates under /v1, which the service fixed', () => {
    const credentials = { key: 'k', organizationId: 'org/1 å', region: 'EU_EES' };
    expect(dialect.authenticate.ask(credentials)).toMatchObject({
      path: '/v1/organizations/org%2F1%20%C3%A5/api-keys/authenticate',
      headers: { authorization: 'Api-Key k', 'x-region': 'EU_EES' },
    });
  });
});
