import { PassThrough, Readable } from 'node:stream';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeColumn, readLines, unescapeColumn } from '../../src/connections/postgres-copy.js';

async function collect(readable: Readable): Promise<string[]> {
  const lines: string[] = [];
  for await (const block of readLines(readable)) lines.push(...block);
  return lines;
}

/** Cuts a buffer at these places, also within lines and within characters. */
function cut(bytes: Buffer, places: readonly number[]): Buffer[] {
  const at = [
    0,
    ...places.map((place) => place % (bytes.length + 1)).toSorted((a, b) => a - b),
    bytes.length,
  ];
  return at.slice(1).map((end, index) => bytes.subarray(at[index], end));
}

const anyLine = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 12 }).map((line) => line.replaceAll('\n', ' ')),
  fc.constantFrom('', 'a\t1', '日本\t-7', String.raw`a\nb	1`),
);

describe('COPY output', () => {
  it('is split into the same lines however its bytes are cut', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(anyLine),
        fc.array(fc.nat(500)),
        fc.boolean(),
        async (lines, places, objectMode) => {
          const bytes = Buffer.from(lines.map((line) => `${line}\n`).join(''), 'utf8');
          const chunks = cut(bytes, places).filter((chunk) => chunk.length > 0);
          const read = await collect(Readable.from(chunks, { objectMode }));
          expect(read.map(decodeColumn)).toEqual(lines);
        },
      ),
    );
  });

  it('may arrive at any pace', async () => {
    const stream = new PassThrough();
    const read = collect(stream);
    for (const chunk of ['one\ntw', 'o\n', 'three', '\n']) {
      stream.write(chunk);
      await new Promise(setImmediate);
    }
    stream.end();
    expect(await read).toEqual(['one', 'two', 'three']);
  });

  it('may be empty', async () => {
    expect(await collect(Readable.from([]))).toEqual([]);
  });

  it('yields the lines before a failure, and then the failure', async () => {
    const stream = new Readable({ read() {} });
    const lines = readLines(stream);
    stream.push('one\ntwo\nthr');
    expect(await lines.next()).toEqual({ done: false, value: ['one', 'two'] });
    const next = lines.next();
    stream.destroy(new Error('canceling statement due to user request'));
    await expect(next).rejects.toThrow('canceling statement');
  });

  it('fails when it failed before it was read, instead of being empty', async () => {
    const stream = new Readable({ read() {} });
    const read = collect(stream);
    stream.destroy(new Error('relation does not exist'));
    await expect(read).rejects.toThrow('relation does not exist');
  });

  it('ends with the failure that happened just before the next line was asked for', async () => {
    const stream = new Readable({ read() {} });
    const lines = readLines(stream);
    stream.push('one\n');
    await lines.next();
    stream.destroy(new Error('terminating connection'));
    await expect(lines.next()).rejects.toThrow('terminating connection');
  });

  it('fails when it is closed before its end', async () => {
    const stream = new Readable({ read() {} });
    const read = collect(stream);
    stream.push('one\ntwo\n');
    await new Promise(setImmediate);
    stream.destroy();
    await expect(read).rejects.toThrow('the connection was closed while reading');
  });
});

describe('a column of COPY output', () => {
  it.each([
    [String.raw`a\tb`, 'a\tb'],
    [String.raw`a\nb\rc`, 'a\nb\rc'],
    [String.raw`\b\f\v`, '\b\f\v'],
    [String.raw`\\`, '\\'],
    [String.raw`\\n`, String.raw`\n`],
    [String.raw`\\N`, String.raw`\N`],
    ['plain', 'plain'],
    ['', ''],
  ])('is unescaped: %s', (escaped, text) => {
    expect(unescapeColumn(escaped)).toBe(text);
  });

  it('sorts as latin1 in the order of its UTF-8 bytes', () => {
    const text = fc.string({ unit: 'binary', maxLength: 6 });
    const latin1 = (value: string) => Buffer.from(value, 'utf8').toString('latin1');
    fc.assert(
      fc.property(text, text, (a, b) => {
        expect(latin1(a) < latin1(b)).toBe(Buffer.compare(Buffer.from(a), Buffer.from(b)) < 0);
        expect(decodeColumn(latin1(a))).toBe(a);
      }),
    );
  });
});
