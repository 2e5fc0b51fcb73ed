import { describe, expect, it } from 'vitest';
import { keysPerBatch } from '../../src/sync/plan/planned-batches.js';

describe('the size of a batch', () => {
  it.each([
    [{ batchSize: 'auto', owns: 'fields' }, 'sync', 1000],
    [{ batchSize: 'auto', owns: 'object' }, 'sync', 1000],
    [{ batchSize: 'auto', owns: 'fields' }, 'incremental', 100],
    // As many as its one find, or those of ten full requests.
    [{ batchSize: 100, owns: 'fields' }, 'sync', 100],
    [{ batchSize: 1, owns: 'object' }, 'sync', 10],
    [{ batchSize: 100, owns: 'object' }, 'sync', 1000],
    [{ batchSize: 150, owns: 'object' }, 'sync', 900],
    [{ batchSize: 1000, owns: 'object' }, 'sync', 1000],
    [{ batchSize: 40, owns: 'object' }, 'incremental', 80],
    [{ batchSize: 250, owns: 'object' }, 'incremental', 250],
  ] as const)('is chosen for %o in the lane %s: %i keys', (stream, lane, keys) => {
    expect(keysPerBatch(stream, lane)).toBe(keys);
  });
});
