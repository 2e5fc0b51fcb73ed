// Jobs of other programs: the keys that are read, and refusals that repeat nothing of the job.
import { describe, expect, it } from 'vitest';
import { readChangeJob } from '../../src/queue/receive-changes.js';

const streams = new Map([
  ['rooms', { key: ['code'] }],
  ['groups', { key: ['programme', 'year'] }],
]);
const read = (data: unknown) => readChangeJob(data, streams);

describe('a job of another program', () => {
  it.each([
    ['a key', { stream: 'rooms', key: 'N201' }, ['N201']],
    ['a number', { stream: 'rooms', key: 7 }, ['7']],
    ['several keys, each once', { stream: 'rooms', keys: ['a', 7, 'a'] }, ['a', '7']],
    ['parts of a key', { stream: 'groups', key: ['M|T', 2] }, ['M\\|T|2']],
    ['joined parts of a key', { stream: 'groups', keys: ['MAT|2', ['MAT', '3']] }, ['MAT|2', 'MAT|3']],
    ['a stream nobody knows', { stream: 'sheds', key: 'a|b' }, ['a|b']],
  ])('is read with %s', (_, data, keys) => {
    expect(read(data)).toEqual({ stream: (data as { stream: string }).stream, keys });
  });

  const SECRET = '19550505-0123';
  it.each([
    ['no object', SECRET, 'the job must be { stream, key }'],
    ['no content', undefined, 'the job must be { stream, key }'],
    ['no stream', { key: SECRET }, 'the job must be { stream, key }'],
    ['neither key nor keys', { stream: 'rooms' }, 'the job must be { stream, key }'],
    [
      'both key and keys',
      { stream: 'rooms', key: SECRET, keys: [SECRET] },
      'the job must be { stream, key }',
    ],
    [
      'an unknown property',
      { stream: 'rooms', key: 'a', [SECRET]: SECRET },
      'the job must be { stream, key }',
    ],
    ['no keys', { stream: 'rooms', keys: [] }, '1 to 10000 keys'],
    ['an empty key', { stream: 'rooms', key: '' }, 'key: a key is text'],
    ['a fraction', { stream: 'rooms', keys: ['a', 1.5] }, 'keys[1]: a key is text'],
    ['a number that lost digits', { stream: 'rooms', key: 2 ** 60 }, 'key: a key is text'],
    ['text PostgreSQL cannot hold', { stream: 'rooms', key: `${SECRET}\0` }, 'key: a key is text'],
    ['half a character', { stream: 'rooms', key: `${SECRET}\ud800` }, 'key: a key is text'],
    ['a key too long', { stream: 'rooms', key: SECRET.repeat(80) }, 'key: a key is text'],
    [
      'parts too long together',
      { stream: 'groups', key: ['a'.repeat(600), SECRET.repeat(40)] },
      'key: the parts of the key are longer than 1024 bytes together',
    ],
    [
      'too few parts',
      { stream: 'groups', keys: [['M', 2], SECRET] },
      'keys[1]: a key of this stream has 2 parts',
    ],
    ['too many parts', { stream: 'rooms', key: [SECRET, SECRET] }, 'key: a key of this stream has 1 part'],
  ])('is refused with %s, and nothing of it is repeated', (_, data, reason) => {
    const answer = read(data);
    expect(answer).toContain(reason);
    expect(answer).not.toContain(SECRET);
  });
});
