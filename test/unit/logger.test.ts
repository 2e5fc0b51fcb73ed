// Guarantee 9
// The logger's own redaction: the last guard, for a secret that somebody hands to it.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createLogger } from '../../src/logger.js';

const FIELDS = ['authorization', 'apiKey', 'token', 'password', 'connectionString', 'databaseUrl'];

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'slotsync-logger-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

describe.each([
  { place: 'a file', isTerminal: false },
  { place: 'a terminal', isTerminal: true },
])('a log line for $place', ({ isTerminal }) => {
  it.each(FIELDS)('secret: a field %s is hidden, wherever it stands', async (field) => {
    const file = path.join(folder, `${field}-${isTerminal}.log`);
    const log = await createLogger('info', isTerminal, file);
    log.info({ [field]: 'hunter2' }, 'at the top');
    log.info({ request: { [field]: 'hunter2' } }, 'inside');
    log.info({ request: { headers: { [field]: 'hunter2', host: 'shown' } } }, 'deeper');
    log.child({ [field]: 'hunter2' }).info('of a child');
    const written = readFileSync(file, 'utf8');
    expect(written).not.toContain('hunter2');
    expect(written.match(/\[secret\]/g)).toHaveLength(4);
    expect(written).toContain('shown');
  });
});
