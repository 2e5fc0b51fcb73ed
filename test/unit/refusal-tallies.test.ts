// Guarantee 6
// What a process counts of the answers to a stream's batches while they are in flight.
import { beforeEach, describe, expect, it } from 'vitest';
import { SlotsyncError } from '../../src/errors/errors.js';
import type { Queries } from '../../src/state/database.js';
import { createRefusalTallies, type RefusalTallies } from '../../src/sync/limits/refusal-tallies.js';
import { resolve, rooms } from './declare.js';

const stream = resolve({ rooms: rooms({ limits: { refused: { count: 5, percent: 10 } } }) });
/** A state without an approval. */
const answers = (execute: () => Promise<unknown>) => ({ execute }) as unknown as Queries;
const db = answers(async () => [{ accepted: 0, allowed: 0 }]);

describe('refusal tallies', () => {
  let tallies: RefusalTallies;
  const refuse = (runId: number, times: number) => {
    for (let at = 0; at < times; at++) tallies.note(stream, runId, true);
  };
  beforeEach(() => void (tallies = createRefusalTallies()));

  it('approval: one that could not be read is read again', async () => {
    refuse(1, 6);
    let reads = 0;
    const failing = answers(async () => {
      if (reads++ === 0) throw new SlotsyncError('state_failed', 'no');
      return [{ accepted: 0, allowed: 6 }];
    });
    await expect(tallies.isBeyond(failing, stream, 1)).rejects.toThrow('no');
    expect(await tallies.isBeyond(failing, stream, 1)).toBe(false);
    refuse(1, 1);
    expect(await tallies.isBeyond(failing, stream, 1)).toBe(true);
    expect(reads).toBe(2);
  });

  it('runs: one that is under way is counted on, however many others begin meanwhile', async () => {
    refuse(1, 5);
    for (let runId = 2; runId < 500; runId++) {
      refuse(runId, 1);
      expect(await tallies.isBeyond(db, stream, 1)).toBe(false);
    }
    refuse(1, 1);
    expect(await tallies.isBeyond(db, stream, 1)).toBe(true);
  });
});
