// Reads a find to its last page. Pages are counted by offset, so they shift if a result is added or removed meanwhile.
// If the total changes, everything is read again, because a read must be complete.
import type { Cursor } from '../dialect/dialect.js';
import { codeOf, messageOf, SlotsyncError } from '../errors/errors.js';
import { DigestSet } from '../text/digest-set.js';
import { answerTooLarge, invalidAnswer, isSpoiled, type Named } from './http-errors.js';
import { MOST_KEPT } from './read-body.js';

/** Number of times a find is read before its changing answers count as an error. */
const MOST_READINGS = 3;
/** Minimum share of `pageSize` that a page may have. A service may return shorter pages than requested. */
const LEAST_OF_A_PAGE = 0.01;
/** Number of pages that every find may have, however few results the service promises. */
const ALWAYS_PAGES = 1000;
const MOST_PAGES = 100_000;

/** A page of a find, as it is requested; see `Question` of the dialect. */
export interface Page {
  page: number;
  limit: number;
  cursor?: Cursor | undefined;
}

export interface PageAnswer<R> {
  results: R[];
  /** Cursor of the next page, or null after the last page. Undefined if the service numbers its pages. */
  next?: Cursor | null | undefined;
  totalPages?: number | null | undefined;
  totalResults?: number | null | undefined;
  /** Number of characters of the JSON that the page was parsed from. */
  characters?: number | undefined;
  /** Number of results on the page that were left out because the service fails on them. */
  skipped?: number | undefined;
}

type Send<R> = (page: Page) => Promise<PageAnswer<R>>;

interface Reading {
  call: Named;
  pageSize: number;
  /** Maximum number of pages that are requested at the same time, after the first page. */
  atOnce?: number | undefined;
}

/** Returns true if the first page of a find holds all its results. */
export function isWholeAnswer({ results, ...answer }: PageAnswer<unknown>, pageSize: number): boolean {
  if (answer.next !== undefined) return answer.next === null;
  const pages = answer.totalPages ?? (results.length < pageSize ? 1 : Infinity);
  return pages <= 1 && results.length >= (answer.totalResults ?? 0);
}

/** Adds up the characters of kept answers. Throws `answer_too_large` if they need too much memory. */
export function countKept(call: Named) {
  let kept = 0;
  return {
    add({ characters = 0 }: Pick<PageAnswer<unknown>, 'characters'>): void {
      kept += characters;
      if (kept > MOST_KEPT)
        throw answerTooLarge(call, `its results together have more than ${MOST_KEPT / 1024 / 1024} MB`);
    },
    characters: () => kept,
  };
}

/**
 * Returns all results, each id once. If they are more than `most`, returns no results, and their number as `tooMany`.
 * Reads again from the beginning if results were added or removed during the find. Throws `answer_invalid`, or `answer_too_large` if
 * the results need too much memory.
 */
export function readPages<R extends { id: string }>(
  send: Send<R>,
  { most = Infinity, ...reading }: Reading & { most?: number | undefined },
): Promise<{ results: R[]; characters: number; tooMany?: number }> {
  const { call } = reading;
  return readAgainWhenMoved(call, async () => {
    const kept = countKept(call);
    const { total, atLeast, pages } = await openPages(send, reading);
    if (atLeast > most) return { results: [], characters: 0, tooMany: atLeast };
    const seen = new Map<string, R>();
    for await (const answer of pages) {
      const { length } = answer.results;
      if (length > reading.pageSize && (answer.totalPages ?? 1) > 1)
        throw invalidAnswer(
          call,
          `a page has ${length} results, more than the ${reading.pageSize} requested`,
        );
      kept.add(answer);
      for (const result of answer.results) seen.set(result.id, result);
      if (seen.size > most) return { results: [], characters: 0, tooMany: seen.size };
    }
    if (seen.size < (total ?? 0))
      throw readingMoved(call, `it states ${total} results, but its pages had only ${seen.size}`);
    return { results: [...seen.values()], characters: kept.characters() };
  });
}

/**
 * Yields a find page by page, and requests the next pages meanwhile. Throws `reading_moved` if results came or went;
 * callers then read again. Throws `answer_invalid` if a page contradicts the first page.
 */
export async function* eachPage<R extends { id: string }>(
  send: Send<R>,
  reading: Reading,
): AsyncGenerator<R[]> {
  const { call } = reading;
  const { total, pages } = await openPages(send, reading);
  let seen = 0;
  const ids = new DigestSet();
  for await (const { results, skipped = 0 } of pages) {
    for (const { id } of results) {
      // A repeated result has moved here from an earlier page. Another result may then have been missed.
      if (!ids.add(id)) throw readingMoved(call);
    }
    seen += results.length + skipped;
    yield results;
  }
  if (total !== undefined && seen !== total)
    throw readingMoved(call, `it states ${total} results, but its pages had ${seen}`);
}

/** Requests the first page. `pages` yields all pages in order, and requests up to `atOnce` pages ahead. */
async function openPages<R>(send: Send<R>, { call, pageSize, atOnce = 1 }: Reading) {
  const first = await send({ page: 1, limit: pageSize });
  const total = first.totalResults ?? undefined;
  const hasCursors = first.next !== undefined;
  if (!hasCursors && typeof first.totalPages !== 'number' && first.results.length >= pageSize)
    throw invalidAnswer(call, 'a full page does not state the number of pages');
  const count = first.results.length === 0 || hasCursors ? 1 : (first.totalPages ?? 1);
  if (count > mostPages(total, pageSize)) {
    const ofHowMany = total === undefined ? '' : ` for ${total} results`;
    throw invalidAnswer(call, `it states ${count} pages${ofHowMany}`);
  }
  async function* pages(): AsyncGenerator<PageAnswer<R>> {
    const ahead: Promise<PageAnswer<R>>[] = [];
    const cursors = new Set<Cursor>();
    let asked = 1;
    const askAhead = (page: number, cursor?: Cursor) => {
      const next = send({ page, limit: pageSize, cursor });
      next.catch(() => undefined); // the caller that awaits it gets the error
      ahead.push(next);
    };
    try {
      for (let answer: PageAnswer<R> | undefined = first; answer; answer = await ahead.shift()) {
        while (asked < count && ahead.length < atOnce) askAhead(++asked);
        if (hasCursors) {
          const { next: cursor } = answer;
          if (cursor === undefined)
            throw invalidAnswer(call, `page ${asked} has no cursor, although the first page has one`);
          if (cursor !== null) {
            if (cursors.has(cursor))
              throw invalidAnswer(call, `page ${asked} repeats the cursor of an earlier page`);
            if (asked >= mostPages(total, pageSize))
              throw invalidAnswer(call, `there are more than ${asked} pages`);
            askAhead(++asked, cursor);
            cursors.add(cursor);
          }
        }
        const now = answer.totalResults ?? undefined;
        if (now !== total)
          throw readingMoved(
            call,
            `its total differs from page to page (${total ?? 'none'}, then ${now ?? 'none'})`,
          );
        yield answer;
      }
    } finally {
      await Promise.allSettled(ahead);
    }
  }
  return { total, atLeast: total ?? (count - 1) * first.results.length + 1, pages: pages() };
}

/** Number of consecutive failed requests, for a page and its parts, after which the service counts as down. */
const MOST_FAILURES = 12;

/**
 * Requests a page, in parts if its answer is too large. Throws `answer_too_large` if a single result or all parts
 * together are too large, and `reading_moved` if the parts do not fit together. With `skips`, also divides a page on
 * which the service fails, and leaves out a single result on which it fails.
 */
export async function askInParts<R>(
  ask: (page: Page) => Promise<PageAnswer<R>>,
  page: Page,
  call: Named,
  skips = false,
  counts = { kept: countKept(call), failuresInRow: 0 },
): Promise<PageAnswer<R>> {
  let reason: unknown;
  const whole = await ask(page).catch((error: unknown) => {
    const maySkip = skips && page.cursor === undefined && isSpoiled(error);
    if (codeOf(error) !== 'answer_too_large' && !(maySkip && ++counts.failuresInRow < MOST_FAILURES))
      throw error;
    reason = error;
    return undefined;
  });
  if (whole) {
    counts.failuresInRow = 0;
    counts.kept.add(whole);
    return whole;
  }
  const isTooLarge = codeOf(reason) === 'answer_too_large';
  if (page.limit === 1) {
    if (isTooLarge) throw answerTooLarge(call, `result ${page.page} of the find is too large on its own`);
    return { results: [], skipped: 1 };
  }
  // The parts must be equal, so that no part reaches into another page.
  const parts = leastFactor(page.limit);
  const limit = page.limit / parts;
  const before = (page.page - 1) * page.limit;
  const results: R[] = [];
  let total: number | undefined;
  let skipped = 0;
  for (let part = 1; part <= parts && before + results.length + skipped < (total ?? Infinity); part++) {
    const place = { ...page, page: before / limit + part, limit };
    const answer = await askInParts(ask, place, call, skips, counts);
    // With cursors, a page may be shorter, because the next page begins where it ended.
    if (answer.next !== undefined) return answer;
    skipped += answer.skipped ?? 0;
    if (answer.skipped === limit && answer.results.length === 0) continue;
    if (typeof answer.totalResults !== 'number') throw reason;
    if (answer.results.length > limit)
      throw invalidAnswer(
        call,
        `a part of a page has ${answer.results.length} results, more than the ${limit} requested`,
      );
    if (answer.totalResults !== (total ?? answer.totalResults)) throw readingMoved(call);
    total = answer.totalResults;
    for (const result of answer.results) results.push(result);
  }
  if (total === undefined) throw reason;
  const expected = Math.max(0, Math.min(page.limit, total - before));
  if (results.length + skipped !== expected)
    throw readingMoved(
      call,
      `the parts of a page should have ${expected} results, but had ${results.length}`,
    );
  const totalPages = Math.ceil(total / page.limit);
  return { results, totalResults: total, totalPages, characters: counts.kept.characters(), skipped };
}

function leastFactor(number: number): number {
  for (let factor = 2; factor * factor <= number; factor++) if (number % factor === 0) return factor;
  return number;
}

/** Calls `read` again while it throws `reading_moved`, up to three times in all. */
export async function readAgainWhenMoved<T>(call: Named, read: () => Promise<T>): Promise<T> {
  for (let reading = 1; ; reading++) {
    try {
      return await read();
    } catch (error) {
      if (codeOf(error) !== 'reading_moved') throw error;
      if (reading < MOST_READINGS) continue;
      throw invalidAnswer(
        call,
        `its pages were inconsistent in ${MOST_READINGS} attempts (${messageOf(error)})`,
      );
    }
  }
}

function readingMoved(
  { method, path }: Named,
  how = 'results were added or removed during the find',
): SlotsyncError {
  return new SlotsyncError('reading_moved', how, { facts: { method, path } });
}

/** Maximum plausible number of pages. At 20 requests a second, 100 000 pages take more than an hour. */
function mostPages(total: number | undefined, pageSize: number): number {
  if (total === undefined) return 10 * ALWAYS_PAGES;
  return Math.min(MOST_PAGES, Math.max(ALWAYS_PAGES, Math.ceil(total / (pageSize * LEAST_OF_A_PAGE))));
}
