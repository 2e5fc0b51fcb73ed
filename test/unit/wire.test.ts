import { describe, expect, it } from 'vitest';
import { createRedaction } from '../../src/destination/redaction.js';
import { findExcess } from '../../src/destination/read-body.js';
import * as wire from '../../src/destination/wire.js';
import { RESERVATION_STATUSES } from '../../src/streams/config-schema.js';
import { createObject } from '../../src/streams/destination-object.js';
import { html } from '../../src/text/html.js';

const taken = (schema: { safeParse(value: unknown): { success: boolean } }, value: unknown) =>
  schema.safeParse(value).success;

const reading = (body: string, errorBodies: wire.ErrorBodies) =>
  wire.readFailure(body, { errorBodies, redact: (text) => text });

describe("the service's own words about a failure", () => {
  it.each([
    [
      'the message of a JSON body',
      '{"message":"mandatory field missing","code":12}',
      'mandatory field missing',
    ],
    ['its error', '{"error":"Bad Request"}', 'Bad Request'],
    ['the message within its error', '{"error":{"message":"unknown type","at":3}}', 'unknown type'],
    ['the message before the error', '{"error":"Bad Request","message":"no such field"}', 'no such field'],
    [
      'its title and detail',
      '{"type":"about:blank","title":"Not valid","detail":"room.name is too long"}',
      'Not valid; room.name is too long',
    ],
    ['its detail alone', '{"status":400,"detail":"no such type"}', 'no such type'],
    [
      'its errors that are texts',
      '{"message":"Not valid","errors":["no name","no type"]}',
      'Not valid; no name; no type',
    ],
    [
      'its errors that have a message or a detail, each once',
      '{"errors":[{"message":"no name"},{"detail":"no type","pointer":"#/typeId"},{"message":"no name"},null,7]}',
      'no name; no type',
    ],
    [
      'its errors by name',
      '{"title":"Not valid","errors":{"name":["is needed","is text"]}}',
      'Not valid; name: is needed; name: is text',
    ],
    [
      'the error that lists others',
      '{"error":{"code":400,"message":"no name","errors":[{"message":"no name"}]}}',
      'no name',
    ],
    ['its text, when no property is known', '{"reason":{"code":"E17"}}', '{"reason":{"code":"E17"}}'],
    ['its text, when the known ones are empty', '{"message":"","errors":[]}', '{"message":"","errors":[]}'],
    ['its text, when the message is no text', '{"message":12}', '{"message":12}'],
    ['the text of JSON of another shape', '["a","b"]', '["a","b"]'],
  ])('are %s', (_, body, words) => {
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
  ])('are not in %s, unless the configuration says that every body is its own', (_, body, words) => {
    expect(reading(body, 'json')).toBeUndefined();
    expect(reading(body, 'any')).toBe(words);
  });

  it('redaction: backslashes and short secrets without end take no time by their square', () => {
    const { add, redact } = createRedaction();
    for (const secret of ['a+b/c', 'x']) add(secret);
    for (const text of ['\\'.repeat(500_000), 'x'.repeat(500_000), `${'\\'.repeat(200_000)}u002B`])
      expect(wire.toDetail(text, redact).length).toBeLessThanOrEqual(500);
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
  ])('redaction: a secret is found %s', (_, shown) => {
    const { add, redact } = createRedaction();
    add(SECRET);
    const redacted = redact(`refused: ${shown}.`);
    expect(redacted).toMatch(/^refused: .*\[secret\].*\.$/);
    // Nothing of it is left: the longest part of what was shown that is still there is of what was beside it.
    const left = redacted.replace('refused: ', '').replace('[secret]', '').replace('.', '');
    const decoded = [
      left,
      ...['base64', 'hex'].map((form) => Buffer.from(left, form as 'hex').toString('latin1')),
    ];
    for (const text of decoded) expect(text).not.toMatch(/live|4f<|~Z|sk\+/);
  });

  it.each([
    ['backwards', Array.from(SECRET).reverse().join('')],
    ['in hexadecimal with spaces', (hexOf(SECRET).match(/../g) ?? []).join(' ')],
    ['in base64 of base64', Buffer.from(Buffer.from(SECRET).toString('base64')).toString('base64')],
    ['cut into two', `${SECRET.slice(0, 8)} ${SECRET.slice(8)}`],
    ['in lower case', SECRET.toLowerCase()],
  ])('redaction: as docs/security.md says, a secret is not found %s', (_, shown) => {
    const { add, redact } = createRedaction();
    add(SECRET);
    expect(redact(shown)).toBe(shown);
  });

  it('are cut short, however long the body is', () => {
    expect(reading('x'.repeat(10_000), 'any')).toHaveLength(500);
    expect(reading(JSON.stringify({ message: 'x'.repeat(10_000) }), 'json')).toHaveLength(500);
  });
});

describe('the levels and values of JSON', () => {
  it('are counted where they open, and not within texts', () => {
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
  const room = {
    id: 4711,
    extId: 'room_1',
    typeId: 'room',
    active: true,
    fields: [{ fieldId: 'f', values: ['v'] }],
  };
  const objects = wire.findAnswer(wire.foundObject);
  const answer = (...results: unknown[]) => ({ results });

  it('may hold properties nobody named', () => {
    const more = { ...room, created: 1, fields: [{ fieldId: 'f', values: ['v'], label: 'F' }] };
    expect(
      taken(objects, { ...answer(more), page: 1, totalPages: 1, totalResults: 1, limit: 1000, took: 3 }),
    ).toBe(true);
  });

  it('may leave out, or have as null, all but the id and the fields', () => {
    expect(taken(objects, answer({ id: 1, fields: [] }))).toBe(true);
    expect(
      taken(objects, {
        ...answer({ id: 1, extId: null, typeId: null, active: null, fields: [] }),
        page: null,
      }),
    ).toBe(true);
  });

  it.each<[string, unknown]>([
    ['no results', {}],
    ['results that are no list', { results: {} }],
    ['a result without an id', answer({ extId: 'room_1', fields: [] })],
    ['an object without fields, whose replacement would empty them', answer({ id: 1, extId: 'room_1' })],
    ['an id that is text', answer({ id: '4711' })],
    ['an id that is no whole number', answer({ id: 1.5 })],
    ['a value that is no text', answer({ ...room, fields: [{ fieldId: 'f', values: [48] }] })],
    ['a field without its id', answer({ ...room, fields: [{ values: ['v'] }] })],
    ['no object at all', []],
    ['null', null],
  ])('is not understood with %s', (_, value) => {
    expect(taken(objects, value)).toBe(false);
  });

  it('is not understood at its first fault, and names that one alone', () => {
    const { error } = objects.safeParse(
      answer(room, ...Array.from({ length: 100_000 }, () => ({ id: 'x', fields: [1, 2] }))),
    );
    expect(error?.issues.map(({ path }) => path.join('.'))).toEqual(['results.1.id', 'results.1.fields.0']);
  });

  it('about reservations needs begin and end', () => {
    const reservations = wire.findAnswer(wire.foundReservation);
    expect(taken(reservations, answer({ id: 1, begin: 1_700_000_000, end: 1_700_003_600 }))).toBe(true);
    expect(taken(reservations, answer({ id: 1, begin: 1_700_000_000 }))).toBe(false);
    expect(taken(reservations, answer({ id: 1, begin: '2025-11-20', end: '2025-11-20' }))).toBe(false);
  });

  it('about reservations and cancellations needs nothing of what people made by hand', () => {
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
    const [one] = wire.findAnswer(wire.foundCancellation).parse(answer(odd)).results.map(wire.toCancellation);
    expect(one).toMatchObject({
      extId: undefined,
      status: ['7', 'B_COMPLETE', 'C_CONFIRMED', 'X_OWN'],
      objects: [{ typeId: 'room', objectId: 'room_A' }],
      fields: [{ fieldId: 'res.title', values: ['Title', '48'] }],
    });
    for (const objects of [null, undefined, []])
      expect(wire.toReservation(wire.foundReservation.parse({ ...odd, objects })).objects).toEqual([]);
  });

  it.each([
    ['results.0.end', { id: 1, begin: 1 }],
    ['results.0.id', { id: null, begin: 1, end: 2 }],
    ['results.0.objects', { id: 1, begin: 1, end: 2, objects: 'room_A' }],
  ])('about reservations names the place of its fault: %s', (place, result) => {
    const { error } = wire.findAnswer(wire.foundReservation).safeParse(answer(result));
    expect(error?.issues.map(({ path }) => path.join('.'))).toEqual([place]);
  });

  it('about cancellations may name the reservation and the time', () => {
    const cancellations = wire.findAnswer(wire.foundCancellation);
    const cancellation = { id: 1, begin: 1, end: 2 };
    expect(taken(cancellations, answer(cancellation))).toBe(true);
    expect(taken(cancellations, answer({ ...cancellation, reservationId: 7, cancelled: 3 }))).toBe(true);
    expect(taken(cancellations, answer({ ...cancellation, cancelled: 'yesterday' }))).toBe(false);
  });
});

describe('the answer of a PUT', () => {
  it('names each object and its status', () => {
    expect(
      taken(wire.putAnswer, { results: [{ extId: 'room_1', status: 200, id: 1, warnings: [] }], took: 1 }),
    ).toBe(true);
    expect(
      taken(wire.putAnswer, { results: [{ extId: 'room_1', status: 400, id: null, message: null }] }),
    ).toBe(true);
  });

  it('has the reason of a refusal where an error has it', () => {
    const result = {
      extId: 'room_1',
      status: 400,
      message: null,
      title: 'Not valid',
      errors: [{ detail: 'no name' }],
    };
    expect(wire.readReason(result)).toBe('Not valid; no name');
    expect(wire.readReason({ extId: 'room_1', status: 409 })).toBeUndefined();
  });

  it.each<[string, unknown]>([
    ['no results', { ok: true }],
    ['a result without an external id', { results: [{ status: 200 }] }],
    ['a result without a status', { results: [{ extId: 'room_1' }] }],
    ['a status that is text', { results: [{ extId: 'room_1', status: 'OK' }] }],
  ])('is not understood with %s: nothing counts as accepted', (_, value) => {
    expect(taken(wire.putAnswer, value)).toBe(false);
  });
});

describe('the answer of authenticating', () => {
  it('holds a token, and nothing else is needed', () => {
    expect(taken(wire.authenticateAnswer, { token: 'x', expires: 1 })).toBe(true);
    for (const answer of [{}, { token: '' }, { token: null }, 'x'])
      expect(taken(wire.authenticateAnswer, answer)).toBe(false);
  });
});

describe('an object that was read', () => {
  const fallback = { extId: 'room_1', typeId: 'room' };

  it('is compared as it would be written', () => {
    const found = {
      id: 1,
      extId: 'room_1',
      typeId: 'room',
      active: false,
      fields: [
        { fieldId: 'b', values: ['2'] },
        { fieldId: 'a', values: ['1'] },
      ],
    };
    expect(wire.toDestinationObject(found, fallback)).toEqual(
      createObject('room_1', 'room', false, [
        ['a', ['1']],
        ['b', ['2']],
      ]),
    );
  });

  it('is of our type and active unless it says otherwise, and empty fields are left out', () => {
    const found = {
      id: 1,
      fields: [
        { fieldId: 'a', values: null },
        { fieldId: 'b', values: [] },
      ],
    };
    expect(wire.toDestinationObject(found, fallback)).toEqual(createObject('room_1', 'room', true, []));
  });
});

it('an object that was read goes back with what is not understood, without what only the service maintains', () => {
  const found = {
    extId: 'room_1',
    typeId: 'room',
    active: false,
    fields: [{ fieldId: 'f', values: ['v'], locked: true }],
    members: [{ objectId: 7 }],
    relations: null,
  };
  const [read] = wire.findAnswer(wire.foundObject).parse({
    results: [{ ...found, id: 7, created: 1, createdBy: 'x', modified: 2, modifiedBy: 'y' }],
  }).results;
  if (!read) throw new Error('nothing was read');
  const object = wire.toDestinationObject(read, { extId: '', typeId: '' });
  expect(wire.putRequest([object]).objects).toEqual([found]);
  const listed = wire.toFoundObject(read, '', false);
  expect(JSON.stringify(listed)).not.toMatch(/members|locked/);
});

describe('a request', () => {
  const page = { page: 2, limit: 1000 };

  it('always speaks of external ids', () => {
    const requests = [
      wire.findRequest({ extIds: ['a'] }, page),
      wire.findRequest({}, page),
      wire.findRequest(wire.windowFilter({ from: 1, to: 2 }), page),
      wire.putRequest([]),
    ];
    for (const request of requests) expect(request.idFormat).toBe('EXTERNAL');
  });

  it('for external ids has no other filter, since the service would answer the union', () => {
    expect(wire.findRequest({ extIds: ['a'] }, page)).toEqual({
      idFormat: 'EXTERNAL',
      extIds: ['a'],
      page: 2,
      limit: 1000,
    });
  });

  it('for reservations names every status, since the service hides those that are not named', () => {
    expect(wire.findRequest(wire.windowFilter({ from: 1, to: 2 }), page)).toMatchObject({
      date: { startDate: 1, endDate: 2 },
      reservationStatus: [
        'B_COMPLETE',
        'B_INCOMPLETE',
        'C_CONFIRMED',
        'C_PRELIMINARY',
        'C_PLANNED',
        'C_REQUESTED',
        'C_REJECTED',
      ],
    });
  });

  it('goes to the configured prefix, but authenticates below the version the service fixed', () => {
    const paths = wire.createPaths('org/1 å', '/v2');
    expect(paths.objects).toBe('/v2/objects');
    expect(paths.findCancellations).toBe('/v2/cancellations/find');
    expect(paths.authenticate).toBe('/v1/organizations/org%2F1%20%C3%A5/api-keys/authenticate');
    expect(wire.createPaths('1', '').findObjects).toBe('/objects/find');
  });
});

describe('a booking', () => {
  it('becomes instants in milliseconds, and both ranks of its status', () => {
    const found = wire.foundReservation.parse({
      id: 1,
      extId: null,
      begin: 1_796_104_800,
      end: 1_796_112_000,
      status: [],
    });
    expect(wire.toReservation(found)).toMatchObject({
      extId: undefined,
      begin: Date.UTC(2026, 11, 1, 6),
      end: Date.UTC(2026, 11, 1, 8),
      status: ['B_COMPLETE', 'C_CONFIRMED'],
      objects: [],
    });
    expect(wire.toReservation({ ...found, status: ['C_PLANNED'] }).status).toEqual([
      'B_COMPLETE',
      'C_PLANNED',
    ]);
    const cancellation = wire.foundCancellation.parse({
      ...found,
      reservationId: 7,
      cancelled: 1_796_104_800,
    });
    expect(wire.toCancellation(cancellation)).toMatchObject({
      reservationId: 7,
      cancelledAt: Date.UTC(2026, 11, 1, 6),
    });
  });

  it('is refused in milliseconds', () => {
    expect(
      wire.foundReservation.safeParse({ id: 1, begin: 1_796_104_800_000, end: 1_796_112_000_000 }).success,
    ).toBe(false);
  });

  it("is asked for by the service's numbers alone, or as changed in a period in every status", () => {
    const first = { page: 1, limit: 10 };
    expect(wire.findRequest({ ids: [1, 2] }, first)).toEqual({ idFormat: 'EXTERNAL', ids: [1, 2], ...first });
    expect(wire.findRequest(wire.modifiedFilter({ from: 1, to: 2 }), first)).toMatchObject({
      modified: { startDate: 1, endDate: 2 },
      reservationStatus: RESERVATION_STATUSES,
      sort: 'ASCID',
    });
  });
});
