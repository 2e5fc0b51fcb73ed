// The first command of the README, as built. It needs only Node, and leaves nothing behind.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { layOut } from '../../src/render/print.js';
import { start } from '../support/program.js';
import { createScreen } from '../support/screen.js';

describe('the demo', () => {
  it('prints every part of its story in order and with the expected result, in any folder', async () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'demo-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    writeFileSync(path.join(folder, '.env'), 'a line that is no setting\n');
    const { code, stdout } = await start(['demo'], {}, folder).finished;
    expect(stdout).toContain('Every result is as expected.');
    expect(code).toBe(0);
    const story = [
      /To create: 12 buildings, .* 400 rooms, /,
      /At most \d+ requests: /,
      /[\d ]+ objects in \d+ writes, [\d.]+ s\. Most requests in any second: [1-9]\d? of 20; refused: 0\./,
      /0 writes sent, in [\d.]+ s\./,
      /Room A101 had 99 seats at the service [\d.]+ (ms|s) later\./,
      /courses 'MAT888'.* given up[^]*credits is not a number/,
      /The course was at the service [\d.]+ (ms|s) later, without a further command\./,
      /booking [567]: in the mirror .*, at the service /,
      /person\.name: stays "Ann-Sofie Ek"; the mirror has ".*" \(write: 'changed'\)/,
      /At the service: Ann-Sofie Ek, Logistics\./,
      /\d+ deactivations of staff, held in run \d+\n.*\d+ of \d+ records would be deactivated/,
      /Nobody was deactivated at the service\./,
    ];
    let from = 0;
    for (const line of story) {
      const found = line.exec(stdout.slice(from));
      expect(found, `${String(line)} in ${stdout.slice(from)}`).not.toBeNull();
      from += (found?.index ?? 0) + 1;
    }
    expect(layOut(createScreen(), stdout.split('\n')).split('\n').length).toBeLessThanOrEqual(70);
  });
});
