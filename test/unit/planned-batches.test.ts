import { describe, expect, it } from 'vitest';
import { keysPerBatch } from '../../src/sync/plan/batches.js';

describe('a batch', () => {
  it.each([
    [{ batchSize: 'auto', owns: 'fields' }, {}, 1000],
    [{ batchSize: 'auto', owns: 'object' }, {}, 1000],
    [{ batchSize: 'auto', owns: 'fields' }, { isIncremental: true }, 100],
    // As many as its one find, or those of ten full requests.
    [{ batchSize: 100, owns: 'fields' }, {}, 100],
    [{ batchSize: 1, owns: 'object' }, {}, 10],
    [{ batchSize: 100, owns: 'object' }, {}, 1000],
    [{ batchSize: 150, owns: 'object' }, {}, 900],
    [{ batchSize: 1000, owns: 'object' }, {}, 1000],
    [{ batchSize: 40, owns: 'object' }, { isIncremental: true }, 80],
    [{ batchSize: 250, owns: 'object' }, { isIncremental: true }, 250],
  ] as const)('of %o, %o, holds %i keys', (stream, circumstances, keys) => {
    expect(keysPerBatch(stream, circumstances)).toBe(keys);
  });
});
