// The README's first command, as built: it needs nothing but Node and leaves nothing behind.
import { describe, expect, it } from 'vitest';
import { start } from '../support/program.js';

describe('demo', () => {
  it('syncs the sample university, sends nothing the second time, and says what was refused and why', async () => {
    const { code, stdout } = await start(['demo'], {}).finished;
    expect(stdout).toContain('Every result is as expected.');
    expect(code).toBe(0);
    expect(stdout).toMatch(/nothing changed +[\d.]+ +\d+ +0 +0 +0/);
    expect(stdout).toMatch(/Most requests in any second: (1\d|20); allowed: 20\./);
    expect(stdout).toMatch(/booking 5: moved at the service from .*\n/);
    expect(stdout).toMatch(/restored_there +1 /);
    expect(stdout).toContain('cancelled_there → restored_there');
    expect(stdout).toContain('mandatory field person.name is missing');
    expect(stdout).toContain("rooms 'Ö404', which is not at the service yet");
  });
});
