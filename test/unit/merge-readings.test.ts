import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SlotsyncError } from '../../src/errors/errors.js';
import {
  mergeReadings,
  type PlanEntry,
  type Lines,
  type MergeCounts,
} from '../../src/sync/plan/merge-readings.js';

const COPY_ESCAPES: Record<string, string> = {
  '\b': String.raw`\b`,
  '\f': String.raw`\f`,
  '\n': String.raw`\n`,
  '\r': String.raw`\r`,
  '\t': String.raw`\t`,
  '\v': String.raw`\v`,
  '\\': String.raw`\\`,
};

/** A column as COPY … TO STDOUT writes it, its bytes read as latin1. */
function copyColumn(text: string | null): string {
  if (text === null) return String.raw`\N`;
  const escaped = text.replace(/[\b\f\n\r\t\v\\]/g, (char) => COPY_ESCAPES[char] ?? char);
  return Buffer.from(escaped, 'utf8').toString('latin1');
}

const copyLine = (key: string | null, rest: string) => `${copyColumn(key)}\t${copyColumn(rest)}`;

/** Compares as COLLATE "C" of a UTF-8 database does. */
const byBytes = (a: string, b: string) => Buffer.compare(Buffer.from(a), Buffer.from(b));

/** Yields the lines in blocks of these sizes in turn. Some are empty, as PostgreSQL may send them. */
async function* inBlocks(lines: readonly string[], sizes: readonly number[] = [2]): AsyncGenerator<string[]> {
  for (let at = 0, turn = 0; at < lines.length; turn++) {
    const size = turn < 1000 ? (sizes[turn % sizes.length] ?? 1) : lines.length;
    yield lines.slice(at, at + size);
    at += size;
  }
}

async function merge(
  rows: Lines,
  marks: Lines,
  options?: Parameters<typeof mergeReadings>[3],
): Promise<{ differences: PlanEntry[]; counts: MergeCounts }> {
  const differences: PlanEntry[] = [];
  const counts = await mergeReadings(rows, marks, async (entry) => void differences.push(entry), options);
  return { differences, counts };
}

/** Facts that the state may have of a record, from which its mark is written. */
type Mark = { gone?: boolean } & (
  | { status: 'synced'; hash: string }
  | { status: 'retired' | 'reserved' | 'unretired' }
  | { status: 'doubt' | 'repair'; hash: string }
  | { status: 'dead'; there: boolean; hash: string }
  | { status: 'failed' | 'deferred' | 'pending' | 'resend'; there: boolean }
);

function markText(mark: Mark): string {
  const gone = mark.gone ? ':gone' : '';
  switch (mark.status) {
    case 'synced':
      return mark.gone ? `synced:a:${mark.hash}:gone` : mark.hash;
    case 'retired':
    case 'reserved':
    case 'unretired':
      return `${mark.status}:a:${gone}`;
    case 'doubt':
    case 'repair':
      return `${mark.status}:a:${mark.hash}${gone}`;
    case 'dead':
      return `dead:${mark.there ? 'a' : 'n'}:${mark.hash}${gone}`;
    default:
      return `${mark.status}:${mark.there ? 'a' : 'n'}:${gone}`;
  }
}

const isThere = (mark: Mark) => ('there' in mark ? mark.there : true);

/** A model of the comparison, as plain as possible. */
function modelOperation(
  hash: string | undefined,
  mark: Mark | undefined,
): Exclude<keyof MergeCounts, 'rows' | 'accepted' | 'deadRows'> | undefined {
  if (mark === undefined) return hash === undefined ? undefined : 'create';
  if (mark.status === 'repair' && mark.hash === (hash ?? '')) return 'repair';
  if (hash === undefined) {
    if (mark.status === 'retired') return undefined;
    if (mark.status === 'unretired') return 'dead';
    return isThere(mark) ? 'retire' : 'forget';
  }
  switch (mark.status) {
    case 'synced':
      return mark.hash === hash ? 'unchanged' : 'update';
    case 'retired':
    case 'repair':
      return 'update';
    case 'resend':
      return mark.there ? 'update' : 'create';
    case 'dead':
      if (mark.hash === hash) return 'dead';
      return mark.there ? 'update' : 'create';
    default:
      return 'retry';
  }
}

interface Case {
  key: string;
  hash: string | undefined;
  mark: Mark | undefined;
}

function modelMerge(cases: readonly Case[]): { differences: PlanEntry[]; counts: MergeCounts } {
  const planned = { create: 0, update: 0, retry: 0, retire: 0, repair: 0, forget: 0 };
  const counts: MergeCounts = { ...planned, unchanged: 0, dead: 0, rows: 0, accepted: 0, deadRows: 0 };
  const differences: PlanEntry[] = [];
  for (const { key, hash, mark } of cases) {
    if (hash !== undefined) counts.rows++;
    if (mark !== undefined && mark.status !== 'retired' && isThere(mark)) counts.accepted++;
    const operation = modelOperation(hash, mark);
    if (operation === undefined) continue;
    counts[operation]++;
    if (operation === 'dead' && hash !== undefined) counts.deadRows++;
    if (mark?.gone && hash !== undefined) differences.push({ operation: 'back', key });
    if (mark && hash === undefined && isThere(mark) && !['synced', 'retired'].includes(mark.status))
      differences.push({ operation: 'unsettled', key });
    if (operation === 'retire') {
      const wasReleased = mark?.status === 'reserved' && { wasReleased: true as const };
      differences.push({ operation, key, ...wasReleased, ...(mark?.gone && { wasGone: true as const }) });
    } else if (operation === 'retry' && mark && !isThere(mark)) {
      differences.push({ operation, key, isNew: true });
    } else if (mark?.status === 'doubt' && mark.hash === hash) {
      differences.push({ operation: 'retry', key, isCheck: true });
    } else if (operation === 'repair') {
      differences.push({ operation, key, ...(hash === undefined && { isRetired: true as const }) });
    } else if (operation !== 'unchanged' && operation !== 'dead') {
      differences.push({ operation: operation as 'create', key });
    }
  }
  return { differences, counts };
}

const mirrorLines = (cases: readonly Case[]) =>
  cases.flatMap(({ key, hash }) => (hash === undefined ? [] : [copyLine(key, hash)]));
const stateLines = (cases: readonly Case[]) =>
  cases.flatMap(({ key, mark }) => (mark === undefined ? [] : [copyLine(key, markText(mark))]));

/** Keys, each between two ¦. The first is empty. */
const AWKWARD = (
  '¦ ¦a¦A¦a ¦ab¦a|b¦a\tb¦a\nb¦\t¦\n¦\r\n¦\b\f\v¦\u007f¦\u0080¦\\¦\\\\¦\\N¦\\.¦\\t¦' +
  'å¦ä¦Ж¦ж¦日本¦ﷺ¦\uffff¦😀'
).split('¦');
const anyKey = fc.oneof(
  fc.constantFrom(...AWKWARD),
  fc.string({ unit: 'binary', maxLength: 4 }).map((key) => key.replaceAll('\0', '')),
);
const anyHash = fc.constantFrom('1', '-1', '9223372036854775807', '-9223372036854775808');
const gone = fc.boolean();
const anyMark: fc.Arbitrary<Mark> = fc.oneof(
  fc.record({ gone, status: fc.constant('synced' as const), hash: anyHash }),
  fc.record({ gone, status: fc.constantFrom('retired', 'reserved', 'unretired') }),
  fc.record({ gone, status: fc.constantFrom('doubt', 'repair'), hash: fc.oneof(anyHash, fc.constant('')) }),
  fc.record({
    gone,
    status: fc.constant('dead' as const),
    there: fc.boolean(),
    hash: fc.oneof(anyHash, fc.constant('')),
  }),
  fc.record({
    gone,
    status: fc.constantFrom('failed', 'deferred', 'pending', 'resend'),
    there: fc.boolean(),
  }),
);
const anyCases = fc
  .uniqueArray(
    fc.record({
      key: anyKey,
      hash: fc.option(anyHash, { nil: undefined }),
      mark: fc.option(anyMark, { nil: undefined }),
    }),
    { selector: ({ key }) => key, maxLength: 25 },
  )
  .map((cases) => cases.toSorted((a, b) => byBytes(a.key, b.key)));
const anySizes = fc.array(fc.integer({ min: 0, max: 4 }), { minLength: 1, maxLength: 5 });

describe('merging the mirror with the state', () => {
  it('finds and counts the differences of two maps, in key order', async () => {
    await fc.assert(
      fc.asyncProperty(anyCases, anySizes, anySizes, async (cases, mirrorSizes, stateSizes) => {
        const merged = merge(
          inBlocks(mirrorLines(cases), mirrorSizes),
          inBlocks(stateLines(cases), stateSizes),
        );
        expect(await merged).toEqual(modelMerge(cases));
      }),
      { numRuns: 300 },
    );
  });

  it('names a record without a row that is not in sync, even if its deactivation was refused', async () => {
    const marks = 'dead:a:1 doubt:a: failed:n: retired:a: 17 synced:a:0:gone unretired:a:'.split(' ');
    const { differences } = await merge(inBlocks([]), inBlocks(marks.map((mark) => copyLine(mark, mark))));
    const named = differences.filter(({ operation }) => operation === 'unsettled');
    expect(named.map(({ key }) => key)).toEqual(['dead:a:1', 'doubt:a:', 'unretired:a:']);
  });

  it.each<[string, Mark, PlanEntry['operation'][]]>([
    ['needs no operation when it is as accepted', { status: 'synced', hash: '1' }, []],
    ['is updated when it differs', { status: 'synced', hash: '2' }, ['update']],
    ['is left alone when it was given up and is unchanged', { status: 'dead', there: true, hash: '1' }, []],
    ['is tried again when its deactivation waited for bookings', { status: 'reserved' }, ['retry']],
  ])('reports a row that was gone and is back, which %s', async (_, mark, operations) => {
    const cases = [{ key: 'k', hash: '1', mark: { ...mark, gone: true } }];
    const { differences } = await merge(inBlocks(mirrorLines(cases)), inBlocks(stateLines(cases)));
    expect(differences.map(({ operation }) => operation)).toEqual(['back', ...operations]);
  });

  it('treats the key `\\N` as text, not as null', async () => {
    const rows = inBlocks([copyLine(String.raw`\N`, '1')]);
    const { differences } = await merge(rows, inBlocks([]));
    expect(differences).toEqual([{ operation: 'create', key: String.raw`\N` }]);
  });
});

describe('a reading of the mirror that cannot be trusted', () => {
  const refusal = async (rows: readonly string[], marks: readonly string[] = []) => {
    const error: unknown = await merge(inBlocks(rows), inBlocks(marks)).catch((reason: unknown) => reason);
    if (!(error instanceof SlotsyncError)) throw new Error(`not refused: ${JSON.stringify(error)}`);
    return error;
  };

  it('is refused when a key repeats, with the key as people write it', async () => {
    const rows = ['a', 'a', 'b', 'Ω\tæ', 'Ω\tæ', 'Ω\tæ'].map((key, at) => copyLine(key, String(at)));
    const error = await refusal(rows, [copyLine('a', '0'), copyLine('b', '2')]);
    expect(error).toMatchObject({ code: 'key_not_unique', disposition: 'dead' });
    expect(error.message).toContain("3 rows repeat a key, such as 'a', 'Ω\tæ'");
    expect(error.remedy).toContain('`key`');
  });

  it('is refused with five of many repeated keys', async () => {
    const keys = ['a', 'b', 'c', 'd', 'e', 'f', 'g'];
    const { message } = await refusal(keys.flatMap((key) => [copyLine(key, '1'), copyLine(key, '2')]));
    expect(message).toContain(`7 rows repeat a key, such as 'a', 'b', 'c', 'd', 'e'`);
    expect(message).not.toContain("'f'");
  });

  it('is refused whichever rows repeat, and whatever the state knows', async () => {
    const repeated = anyCases
      .filter((cases) => cases.some(({ hash }) => hash !== undefined))
      .chain((cases) => {
        const rows = cases.filter(({ hash }) => hash !== undefined);
        return fc.tuple(fc.constant(cases), fc.subarray(rows, { minLength: 1 }), fc.boolean());
      });
    await fc.assert(
      fc.asyncProperty(repeated, async ([cases, twice, same]) => {
        const rows = cases.flatMap((one) => {
          const lines = mirrorLines([one]);
          return twice.includes(one)
            ? [...lines, ...(same ? lines : mirrorLines([{ ...one, hash: '5' }]))]
            : lines;
        });
        expect(await refusal(rows, stateLines(cases))).toMatchObject({ code: 'key_not_unique' });
      }),
    );
  });

  it('is refused when a key is null, with the number of such rows', async () => {
    const rows = [copyLine('a', '1'), copyLine(null, '2'), copyLine(null, '3')];
    const error = await refusal(rows, [copyLine('a', '1'), copyLine('b', '1')]);
    expect(error).toMatchObject({ code: 'key_null', disposition: 'dead' });
    expect(error.message).toContain('null in 2 rows');
  });

  it('is refused when a row has the key of an object without a row', async () => {
    const rows = [copyLine('#former room_1', '1'), copyLine('a', '1')];
    expect(await refusal(rows, [copyLine('#former room_1', '3')])).toMatchObject({
      code: 'key_reserved',
      disposition: 'dead',
      message: "the key begins with '#former ', which is reserved for former objects, in 1 row",
    });
    await merge(inBlocks([copyLine('#former', '1')]), inBlocks([]));
  });

  it('is refused exactly when its keys are not in byte order', async () => {
    const shuffled = anyCases.chain((cases) =>
      fc.tuple(fc.constant(cases), fc.shuffledSubarray(cases, { minLength: cases.length })),
    );
    await fc.assert(
      fc.asyncProperty(shuffled, async ([cases, disordered]) => {
        const rows = mirrorLines(disordered);
        const marks = stateLines(cases);
        const isOrdered = rows.join('\n') === mirrorLines(cases).join('\n');
        if (isOrdered) await merge(inBlocks(rows), inBlocks(marks));
        else expect(await refusal(rows, marks)).toMatchObject({ code: 'key_order', disposition: 'dead' });
      }),
    );
  });

  it('is read to its end before it is refused, so that every fault is counted', async () => {
    const { message } = await refusal(['b', 'a', 'c', 'c'].map((key) => copyLine(key, '1')));
    expect(message).toContain("1 row repeats a key, such as 'c'");
  });
});

describe('--force', () => {
  const forced = (options: Parameters<typeof mergeReadings>[3] = {}) => {
    const lines = ['a', 'b'].map((key) => copyLine(key, '1'));
    return merge(inBlocks(lines), inBlocks(lines), { isForced: true, ...options });
  };

  it('sends unchanged rows, unless they are excepted or the stream has no updates', async () => {
    const update = { operation: 'update', key: 'b', isForced: true };
    const inBoth = { rows: 2, accepted: 2, unchanged: 0 };
    const { differences, counts } = await forced({ excepted: new Set(['a']) });
    expect([differences, counts]).toMatchObject([[update], { ...inBoth, update: 1, excepted: 1 }]);
    const without = await forced({ sendsUpdates: false });
    expect([without.differences, without.counts]).toMatchObject([[], { ...inBoth, left_out: 2 }]);
  });
});

describe('a merge that ends early', () => {
  /** Creates a reading that records whether it was closed. */
  function reading(lines: readonly string[], failure?: Error) {
    const seen = { closed: false };
    async function* read(): AsyncGenerator<string[]> {
      try {
        yield* inBlocks(lines, [1]);
        if (failure) throw failure;
      } finally {
        seen.closed = true;
      }
    }
    return { lines: read(), seen };
  }

  it('closes both readings when a reading fails, and passes the failure on', async () => {
    const mirror = reading([copyLine('a', '1')], new Error('the mirror went away'));
    const state = reading(['a', 'b', 'c'].map((key) => copyLine(key, '1')));
    await expect(merge(mirror.lines, state.lines)).rejects.toThrow('the mirror went away');
    expect([mirror.seen.closed, state.seen.closed]).toEqual([true, true]);
  });

  it('closes both readings when a difference cannot be planned', async () => {
    const mirror = reading(['a', 'b', 'c'].map((key) => copyLine(key, '1')));
    const state = reading(['a', 'b', 'c'].map((key) => copyLine(key, '2')));
    const merging = mergeReadings(mirror.lines, state.lines, () => Promise.reject(new Error('disk full')));
    await expect(merging).rejects.toThrow('disk full');
    expect([mirror.seen.closed, state.seen.closed]).toEqual([true, true]);
  });
});
