// A find is read whole or it is an error: pages that shift, repeat or skip are read again.
import { describe, expect, it } from 'vitest';
import { askInParts, eachPage, readAgainWhenMoved, readPages } from '../../src/destination/paging.js';
import { answerTooLarge } from '../../src/destination/http-errors.js';
import type { SlotsyncError } from '../../src/errors/errors.js';

const READING = {
  call: { method: 'POST', path: '/v1/reservations/find' },
  pageSize: 2,
  atOnce: 4,
} as const;
const rows = (...ids: number[]) => ids.map((id) => ({ id: String(id) }));

/** Plays a service with these ids. `meddle` may change the ids before each page. */
function serve(ids: number[], meddle: (page: number, reading: number) => void = () => undefined) {
  let reading = 0;
  return async ({ page, limit }: { page: number; limit: number }) => {
    if (page === 1) reading++;
    meddle(page, reading);
    const from = (page - 1) * limit;
    return {
      results: rows(...ids.slice(from, from + limit)),
      totalPages: Math.ceil(ids.length / limit),
      totalResults: ids.length,
    };
  };
}

describe('a find', () => {
  it('is read to its last page, with each result once', async () => {
    expect(await readPages(serve([1, 2, 3, 4, 5]), READING)).toMatchObject({ results: rows(1, 2, 3, 4, 5) });
    expect(await readPages(serve([]), READING)).toMatchObject({ results: [] });
  });

  it('returns the total after one page when it has more results than wanted', async () => {
    let pages = 0;
    const send = serve([1, 2, 3, 4, 5], () => pages++);
    expect(await readPages(send, { ...READING, most: 4 })).toMatchObject({ results: [], tooMany: 5 });
    expect(pages).toBe(1);
  });

  it('is found by its number of pages to have more results than wanted if it states no total', async () => {
    const send = async () => ({ results: rows(1, 2), totalPages: 4 });
    expect(await readPages(send, { ...READING, most: 6 })).toMatchObject({ results: [], tooMany: 7 });
  });

  it('is read again when its pages had fewer results than its total', async () => {
    const ids = [1, 2, 3, 4, 5];
    // The first goes when the second page is asked for: 3 slips onto a page that was read already.
    const send = serve(ids, (page, reading) => {
      if (page === 2 && reading === 1) ids.shift();
    });
    expect(await readPages(send, { ...READING, atOnce: 1 })).toMatchObject({ results: rows(2, 3, 4, 5) });
  });

  it('is read again when its total changed during the reading, although as many results were seen', async () => {
    const ids = [1, 2, 3, 4, 5];
    // As before, but two came at the end: 6 replaces 3, and the five that were seen are not those that are there.
    const send = serve(ids, (page, reading) => {
      if (page === 2 && reading === 1) ids.splice(0, ids.length, 2, 3, 4, 5, 6, 7);
    });
    expect(await readPages(send, { ...READING, atOnce: 1 })).toMatchObject({
      results: rows(2, 3, 4, 5, 6, 7),
    });
  });

  it.each<[string, { id: string }[], pages?: number, total?: number, pageSize?: number]>([
    ['its pages had only 2', rows(1, 2), 1, 3],
    ['its pages had only 1', rows(1, 1), 1, 2],
    ['it states 10000000 pages', rows(1, 2), 10_000_000, 9],
    ['it states 90000 pages for 90000 results', rows(1), 90_000, 90_000, 500],
    ['a page has 3 results, more than the 2 requested', rows(1, 2, 3), 2, 6],
    ['10001 pages', rows(1, 2), 10_001],
    ['does not state the number of pages', rows(1, 2)],
  ])(
    'fails after at most three requests: %s',
    async (message, results, totalPages?, totalResults?, pageSize = 2) => {
      let requests = 0;
      const send = async () => {
        requests++;
        return { results, totalPages, totalResults };
      };
      const error = await readPages(send, { ...READING, pageSize }).catch((thrown: unknown) => thrown);
      expect(requests).toBeLessThanOrEqual(3);
      expect(error).toMatchObject({ code: 'answer_invalid', disposition: 'retry' });
      expect((error as SlotsyncError).message).toContain(message);
    },
  );

  it('fails when its total changes in every reading', async () => {
    const ids = [1, 2, 3];
    const send = serve(ids, (page) => {
      if (page === 2) ids.push(ids.length + 1);
    });
    await expect(readPages(send, READING)).rejects.toMatchObject({ code: 'answer_invalid' });
  });
});

describe('a find with cursors', () => {
  /** Plays a service that answers each cursor with a page of one result. */
  const follow = (nexts: readonly (string | null | undefined)[], ids?: readonly number[]) => {
    const asked: (string | number | undefined)[] = [];
    const send = async ({ cursor }: { cursor?: string | number | undefined }) => {
      const at = asked.push(cursor) - 1;
      return { results: rows(ids?.[at] ?? at + 1), next: nexts[at] };
    };
    return { asked, send };
  };
  const all = async (send: Parameters<typeof eachPage<{ id: string }>>[0]) => {
    const ids: number[] = [];
    for await (const page of eachPage(send, READING)) for (const { id } of page) ids.push(Number(id));
    return ids;
  };

  it('is read page by page until the cursor is null, in any order of ids', async () => {
    const { asked, send } = follow(['a', 'b', null], [7, 3, 5]);
    expect(await readPages(send, READING)).toMatchObject({ results: rows(7, 3, 5) });
    expect(asked).toEqual([undefined, 'a', 'b']);
    expect(await all(follow(['a', 'b', null], [7, 3, 5]).send)).toEqual([7, 3, 5]);
  });

  it('fails when a cursor repeats, or is missing after the first page', async () => {
    for (const nexts of ['aba', 'aa', 'a'].map((names) => Array.from(names))) {
      await expect(readPages(follow(nexts).send, READING)).rejects.toMatchObject({ code: 'answer_invalid' });
      await expect(all(follow(nexts).send)).rejects.toMatchObject({ code: 'answer_invalid' });
    }
  });

  it('fails when new cursors never end', async () => {
    let page = 0;
    const send = async () => ({ results: [], next: String(++page) });
    await expect(readPages(send, READING)).rejects.toMatchObject({ code: 'answer_invalid' });
  });

  it('returns the count as soon as there are more results than wanted', async () => {
    const { asked, send } = follow(['a', 'b', 'c', 'd', null]);
    expect(await readPages(send, { ...READING, most: 2 })).toMatchObject({ results: [], tooMany: 3 });
    expect(asked.length).toBeLessThan(5);
  });

  it('is read in smaller pages when a page is too large', async () => {
    const { send } = follow(['a', null]);
    const ask = (page: { page: number; limit: number; cursor?: string | number | undefined }) => {
      if (page.limit > 1) throw answerTooLarge(READING.call, 'it has more than 64 MB');
      return send(page);
    };
    const inParts: Parameters<typeof readPages<{ id: string }>>[0] = (page) =>
      askInParts(async (part) => ask(part), page, READING.call);
    expect(await readPages(inParts, READING)).toMatchObject({ results: rows(1, 2) });
  });
});

describe('a reading of all objects of a type', () => {
  type Send = Parameters<typeof eachPage<{ id: string }>>[0];
  const readAll = (send: Send, reading: Omit<typeof READING, 'atOnce'> & { atOnce: number } = READING) =>
    readAgainWhenMoved(reading.call, async () => {
      const pages: number[][] = [];
      for await (const page of eachPage(send, reading)) pages.push(page.map(({ id }) => Number(id)));
      return pages;
    });

  it('yields the pages in order, whatever the order of the answers', async () => {
    const answer = serve([1, 2, 3, 4, 5, 6, 7]);
    const opened: (() => void)[] = [];
    const send: Send = async (page) => {
      if (page.page > 1) await new Promise<void>((resolve) => opened.push(resolve));
      return answer(page);
    };
    const read = readAll(send);
    while (opened.length < 3) await new Promise((resolve) => setImmediate(resolve));
    for (const open of opened.toReversed()) open();
    expect(await read).toEqual([[1, 2], [3, 4], [5, 6], [7]]);
    expect(await readAll(serve([]))).toEqual([[]]);
  });

  it('accepts any order of ids, and fails when an id comes twice', async () => {
    expect(await readAll(serve([5, 1, 4, 2]))).toEqual([
      [5, 1],
      [4, 2],
    ]);
    await expect(readAll(serve([5, 1, 4, 5]))).rejects.toThrow('were inconsistent in 3 attempts');
  });

  it('starts again when an object comes or goes meanwhile', async () => {
    const ids = [1, 2, 3, 4, 5];
    const send = serve(ids, (page, reading) => {
      if (page === 2 && reading === 1) ids.shift();
      if (page === 2 && reading === 2) ids.push(6);
    });
    expect(await readAll(send, { ...READING, atOnce: 1 })).toEqual([[2, 3], [4, 5], [6]]);
  });

  it('starts again when one object goes and another comes, so that a page repeats an id', async () => {
    const ids = [2, 3, 4, 5];
    const send = serve(ids, (page, reading) => {
      if (page === 2 && reading === 1) ids.splice(0, 4, 1, 2, 3, 4);
    });
    expect(await readAll(send, { ...READING, atOnce: 1 })).toEqual([
      [1, 2],
      [3, 4],
    ]);
  });

  it('fails after three readings when there are fewer pages than promised', async () => {
    let readings = 0;
    const send: Send = async ({ page }) => {
      if (page === 1) readings++;
      return { results: page === 1 ? rows(1, 2) : [], totalPages: 3, totalResults: 6 };
    };
    const message = expect.stringContaining('it states 6 results, but its pages had 2');
    await expect(readAll(send)).rejects.toMatchObject({ code: 'answer_invalid', message });
    expect(readings).toBe(3);
  });

  it('fails when a full page does not say how many pages there are', async () => {
    await expect(readAll(async () => ({ results: rows(1, 2) }))).rejects.toThrow(
      'a full page does not state the number of pages',
    );
  });
});

describe('a page whose answer is too large', () => {
  const { call } = READING;
  /** Asks `send` in parts. An answer may weigh at most 100. A result weighs 10 unless `weights` says otherwise. */
  function askLimited(send: ReturnType<typeof serve>, weights: Readonly<Record<number, number>> = {}) {
    const sizes: number[] = [];
    const ask = async (page: { page: number; limit: number }) => {
      const answer = await send(page);
      sizes.push(answer.results.length);
      const weight = answer.results.reduce((sum, { id }) => sum + (weights[Number(id)] ?? 10), 0);
      if (weight > 100) throw answerTooLarge(call, 'it has more than 64 MB');
      return answer;
    };
    return { sizes, ask: (page: { page: number; limit: number }) => askInParts(ask, page, call) };
  }
  const upTo = (count: number) => Array.from({ length: count }, (_, at) => at + 1);

  it.each([
    [1000, 1000],
    [35, 12],
    [7, 100],
    [20, 11],
  ])('is read in parts, with each result once: pages of %i, %i results', async (pageSize, count) => {
    const { ask, sizes } = askLimited(serve(upTo(count)));
    expect(await readPages(ask, { call, pageSize })).toMatchObject({ results: rows(...upTo(count)) });
    const pages: unknown[] = [];
    for await (const page of eachPage(ask, { call, pageSize })) pages.push(...page);
    expect(pages).toEqual(rows(...upTo(count)));
    expect(Math.max(...sizes)).toBeLessThanOrEqual(pageSize);
  });

  it('is read in parts, while the pages beside it are read once', async () => {
    const { ask, sizes } = askLimited(serve(upTo(16)), { 9: 95 });
    expect(await readPages(ask, { call, pageSize: 4 })).toMatchObject({ results: rows(...upTo(16)) });
    expect(sizes).toEqual([4, 4, 4, 2, 1, 1, 2, 4]);
  });

  it.each([
    ['parts of a page', 16],
    ['pages of a find', 2],
  ])('fails when the %s together are more than fits in memory', async (_, pageSize) => {
    let answers = 0;
    const send = serve(upTo(16));
    const { ask } = askLimited(
      async (page) => {
        const answer = { ...(await send(page)), characters: 60 * 1024 * 1024 };
        if (answer.results.length <= 2) answers++;
        return answer;
      },
      Object.fromEntries(upTo(16).map((id) => [id, 40])),
    );
    await expect(readPages(ask, { call, pageSize })).rejects.toMatchObject({
      code: 'answer_too_large',
      message: `POST ${call.path}: the answer is too large: its results together have more than 256 MB`,
    });
    expect(answers).toBeGreaterThan(4); // 256 MB are more than four of them
    // Page by page it is read to its end: what was worked on is not kept.
    let read = 0;
    for await (const page of eachPage(ask, { call, pageSize: 2 })) read += page.length;
    expect(read).toBe(16);
  });

  it('fails when a single result is too large, and names the result', async () => {
    const { ask } = askLimited(serve(upTo(16)), { 11: 101 });
    await expect(readPages(ask, { call, pageSize: 8 })).rejects.toMatchObject({
      code: 'answer_too_large',
      message: `POST ${call.path}: the answer is too large: result 11 of the find is too large on its own`,
    });
  });

  it('fails when a part has more results than were asked for', async () => {
    const results = upTo(300_000).map((id) => ({ id: String(id) }));
    const ask = async ({ limit }: { limit: number }) => {
      if (limit === 12) throw answerTooLarge(call, 'it has more than 64 MB');
      return { results, totalResults: 12 };
    };
    await expect(askInParts(ask, { page: 1, limit: 12 }, call)).rejects.toMatchObject({
      code: 'answer_invalid',
    });
  });

  it('fails when results come or go between its parts, or when its parts state no total', async () => {
    const ids = upTo(12);
    let isMoved = false;
    const { ask } = askLimited(
      serve(ids, (page) => {
        if (page > 1 && !isMoved) isMoved = ids.shift() !== undefined;
      }),
    );
    await expect(ask({ page: 1, limit: 12 })).rejects.toMatchObject({ code: 'reading_moved' });
    const silent = askLimited(async (page) => ({
      ...(await serve(upTo(12))(page)),
      totalResults: undefined as never,
    }));
    await expect(silent.ask({ page: 1, limit: 12 })).rejects.toMatchObject({ code: 'answer_too_large' });
    // A service with smaller pages than were asked for: its parts are not those of the page.
    const answer = serve(upTo(40));
    const capped = askLimited(async ({ page, limit }) => answer({ page, limit: Math.min(limit, 3) }), {
      1: 99,
    });
    await expect(capped.ask({ page: 1, limit: 12 })).rejects.toMatchObject({ code: 'reading_moved' });
  });
});
