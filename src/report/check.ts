// What `check` prints: one line for each finding, and the sum.
import type { Finding } from '../sync/check.js';
import { plural } from './format.js';

const SIGNS = { ok: '✓', fault: '✗', note: '·' } as const;

export function describeFinding({ what, result, text, remedy }: Finding): string {
  const line = `${SIGNS[result]} ${what}: ${text}`;
  return remedy === undefined ? line : `${line}\n    → ${remedy}`;
}

export function describeFindings(faults: readonly Finding[]): string {
  return faults.length === 0
    ? '\nNo faults found. See what would be sent: slotsync plan'
    : `\n${plural(faults.length, 'fault')} to correct.`;
}
