// docs/operations.md lists exactly the error codes of the catalogue.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { format } from 'prettier';
import { describe, expect, it } from 'vitest';
import { exitCodeOfErrorCode, exitCodeOfRun } from '../../src/commands/command.js';
import {
  errorEntry,
  ERRORS,
  recordRemedy,
  remedyFor,
  type ErrorEntry,
} from '../../src/errors/error-catalogue.js';
import { SlotsyncError } from '../../src/errors/errors.js';

const operations = readFileSync(fileURLToPath(new URL('../../docs/operations.md', import.meta.url)), 'utf8');
const [, listed = ''] = /<!-- error codes -->\n([^]*?)<!-- end of error codes -->/.exec(operations) ?? [];

const NEXT_RUN = /The next run tries again: slotsync sync(?:\. |\.?$)/;
const WHEN_BACK = /Nothing is lost\. Once it answers again(?:, run .* sent by)?: slotsync sync(?:\. |$)/;

/** Groups of the list. `says` is true of all codes of a group, so their remedies do not repeat it (`omits`). */
const GROUPS = [
  {
    says: '**`retry`**: nothing is lost. Run the same command again; `slotsync sync` sends what a run has left.',
    has: ({ disposition }: ErrorEntry) => disposition === 'retry',
    omits: new RegExp(`${NEXT_RUN.source}|${WHEN_BACK.source}`),
  },
  {
    says: '**`defer`**: sent automatically later.',
    has: ({ disposition }: ErrorEntry) => disposition === 'defer',
    omits: NEXT_RUN,
  },
  {
    says: '**`dead`, exit code 2**: correct it, then run `slotsync check`.',
    has: ({ disposition, exitCode }: ErrorEntry) => disposition === 'dead' && exitCode === 2,
    omits: /(?:, t|\. T|: )(?:hen: )?slotsync check$/,
  },
  {
    says: '**`dead`**, a record is given up: it is sent again when its row changes, or after `slotsync retry …`.',
    has: ({ isGivenUp }: ErrorEntry) => isGivenUp === true,
    omits: /(?:, then|\. Then|\. To send it again unchanged|\. To try now): slotsync retry …$/,
  },
  {
    says: '**`dead`**, anything else: waits for an operator or a corrected row.',
    has: ({ disposition, exitCode, isGivenUp }: ErrorEntry) =>
      disposition === 'dead' && exitCode !== 2 && !isGivenUp,
    omits: /^$/,
  },
];

/** Renders the list as docs/operations.md must have it. */
async function list(): Promise<string> {
  const entries = Object.entries<ErrorEntry>(ERRORS);
  const parts = GROUPS.map(({ says, has, omits }) => {
    const rows = entries
      .filter(([, entry]) => has(entry))
      .map(([code, { meaning }]) => {
        const remedy = recordRemedy(code, (option = '') =>
          `slotsync retry <stream> <key> ${option}`.trim(),
        ).replaceAll('<stream> <key>', '…');
        return `- \`${code}\`: ${[meaning, remedy.replace(omits, '').trim()].filter(Boolean).join('. ')}`;
      });
    return [says, '', ...rows].join('\n');
  });
  return format(`${parts.join('\n\n')}\n`, { parser: 'markdown' });
}

describe('error codes', () => {
  it('are listed in docs/operations.md as the catalogue describes them', async () => {
    expect(`\n${listed.trim()}\n`).toBe(`\n${(await list()).trim()}\n`);
  });

  it('have the same entry with and without the status of an answer', () => {
    expect(errorEntry('refused_422')).toBe(ERRORS.refused);
    expect(errorEntry('retirement_refused_409')).toBe(ERRORS.retirement_refused);
    expect(errorEntry('refused_413')).toBe(ERRORS.refused_413);
    expect(recordRemedy('refused_413', () => 'slotsync retry rooms A')).toMatch(
      /`batchSize`.* slotsync retry rooms A$/,
    );
    expect(errorEntry('ECONNREFUSED')).toBe(ERRORS.unexpected);
    expect(errorEntry(null)).toBe(ERRORS.unexpected);
  });

  it('name a command as remedy, or say that no action is needed', () => {
    const { usage: _, ...others } = ERRORS;
    for (const { remedy } of Object.values(others))
      expect(remedy).toMatch(/\bslotsync [a-z]|^No action needed|the same command|\{retry\}/);
  });

  it('name the command that sends a record again if and only if the record is given up', () => {
    for (const entry of Object.values<ErrorEntry>(ERRORS))
      expect(entry.isGivenUp ?? false).toBe((entry.recordRemedy ?? entry.remedy).includes('{retry}'));
  });

  it('state the exit code of a forbidden request for a command and for a run', () => {
    const gate = { operation: '*', reason: 'forbidden', count: 1, facts: { accepted: 0 } } as const;
    const code = exitCodeOfRun({ status: 'held', errorCode: null, holds: { rooms: { forbidden: gate } } });
    expect(code).not.toBe(exitCodeOfErrorCode('forbidden'));
    expect(errorEntry('forbidden').meaning).toContain(
      `a run holds the records that need it, and ends with exit code ${code}`,
    );
  });

  it('leave no placeholder in a printed remedy', () => {
    for (const code of Object.keys(ERRORS) as (keyof typeof ERRORS)[]) {
      expect(remedyFor(code)).not.toContain('{');
      expect(new SlotsyncError(code, '').remedy).not.toContain('{');
      expect(recordRemedy(code, () => 'slotsync retry rooms A')).not.toContain('{');
    }
  });
});
