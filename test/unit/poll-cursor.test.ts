// Classes of a polled row beside the record of its key: open, settled, or to be read again within the overlap.
import { describe, expect, it } from 'vitest';
import { classifyPolled } from '../../src/sync/detect/poll-cursor.js';

describe('the class of a polled key', () => {
  const recordOf = (mark: string | null, isHeld = false) => ({
    localKey: 'A',
    mark,
    isWaiting: false,
    isHeld,
  });
  it.each([
    ['nothing known', '1', undefined, 'open'],
    ['no record', '1', recordOf(null), 'open'],
    ['no record, held', '1', recordOf(null, true), 'settled'],
    ['as accepted', '1', recordOf('1'), 'settled'],
    ['another row', '2', recordOf('1'), 'open'],
    ['another row, held', '2', recordOf('1', true), 'settled'],
    ['in doubt', '1', recordOf('doubt:a:'), 'open'],
    ['as accepted, its row seen to be gone', '1', recordOf('synced:a:1:gone'), 'open'],
    ['dead with this row', '1', recordOf('dead:n:1'), 'settled'],
    ['dead with another row', '2', recordOf('dead:n:1'), 'open'],
    ['whose retirement was refused', '1', recordOf('unretired:a:'), 'open'],
    ['waiting for another record', '2', recordOf('deferred:n:'), 'again'],
    ['waiting for the end of its reservations', '2', recordOf('reserved:a:'), 'again'],
    ['failed', '1', recordOf('failed:n:'), 'open'],
    ['refused, and to be sent once more later', '1', recordOf('failed:n:1'), 'settled'],
    ['refused with another row', '2', recordOf('failed:n:1'), 'open'],
    ['of a shared external id', '1', recordOf('shared:n:'), 'again'],
    ['retired', '1', recordOf('retired:a:'), 'open'],
  ])('is decided: %s', (_, hash, known, verdict) => {
    expect(classifyPolled(hash, known)).toBe(verdict);
  });
});
