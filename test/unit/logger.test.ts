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

  it('controls: what a terminal would obey is shown, wherever it stands', async () => {
    const file = path.join(folder, `controls-${isTerminal}.log`);
    const log = await createLogger('info', isTerminal, file);
    const text = 'a\x1b]0;x\x07b\u202Ec\x9bd\x7fe';
    log.info({ text, inside: { [text]: [text] }, err: new Error(text) }, text);
    const written = readFileSync(file, 'utf8').replaceAll(/\p{Cc}\[\d+m/gu, ''); // our own colours
    expect(written).not.toMatch(/(?!\n)[\p{Cc}\p{Bidi_Control}]/u);
    const shown = written.split('a\\u001b]0;x\\u0007b\\u202ec\\u009bd\\u007fe').length - 1;
    expect(shown).toBeGreaterThanOrEqual(4);
  });
});
