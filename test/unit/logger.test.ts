// Guarantee 9
import { describe, expect, it } from 'vitest';
import { createLogger } from '../../src/logger.js';

const SECRET = 'secret-5f0c1e77';

/** The names under which the program has a secret: of headers, settings, and options of clients. */
const NAMES = [
  'authorization',
  'apiKey',
  'token',
  'httpToken',
  'password',
  'connectionString',
  'databaseUrl',
  'mirrorUrl',
  'stateUrl',
  'redisUrl',
];

const SHAPES: [shape: string, fields: (name: string) => object][] = [
  ['a field', (name) => ({ [name]: SECRET })],
  ['a field of an object', (name) => ({ settings: { [name]: SECRET } })],
  ['a field of an object in an object', (name) => ({ request: { headers: { [name]: SECRET } } })],
];

async function open() {
  const lines: string[] = [];
  const log = await createLogger('trace', false, { write: (line) => void lines.push(line) });
  return { log, lines };
}

function expectCensored(lines: readonly string[]): void {
  expect(lines).toHaveLength(1);
  expect(lines[0]).not.toContain(SECRET);
  expect(lines[0]).toContain('[secret]');
}

describe('log line: a secret is not in it', () => {
  describe.each(SHAPES)('as %s', (_, fields) => {
    it.each(NAMES)('%s', async (name) => {
      const { log, lines } = await open();
      log.info(fields(name), 'message');
      expectCensored(lines);
    });

    it.each(NAMES)('%s of a child logger', async (name) => {
      const { log, lines } = await open();
      log.child(fields(name)).error('message');
      expectCensored(lines);
    });
  });

  it.each([
    ['of the settings', { api: { key: SECRET } }],
    ['of an object with the settings', { settings: { api: { key: SECRET } } }],
  ])('as the key %s', async (_, fields) => {
    const { log, lines } = await open();
    log.info(fields, 'message');
    expectCensored(lines);
  });

  it('and other fields are', async () => {
    const { log, lines } = await open();
    log.info({ code: 'claimed', batch: 7 }, 'message');
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({ code: 'claimed', batch: 7, msg: 'message' });
  });
});
