// Sends finds: by filters, page by page, and by any number of names, in smaller requests if a name spoils the answer.
import { setTimeout as sleep } from 'node:timers/promises';
import type { CompleteDialect } from '../dialect/complete-dialect.js';
import { NotUnderstood, type Filter, type Json } from '../dialect/dialect.js';
import { codeOf, SlotsyncError } from '../errors/errors.js';
import type { Logger } from '../process/logger.js';
import { retryDelayMs } from '../time/deadline.js';
import type { Client } from './client.js';
import type { Context } from './exchange.js';
import { answerTooLarge, failsOnFound, isRequestTooLarge, isSpoiled, refusedContent } from './http-errors.js';
import { askInParts, countKept, readPages, type Page } from './paging.js';
import type { Find, Ids } from './read-answers.js';

/** Reason by id why an object cannot be read. Needs one map for external ids and another for numbers. */
export type Unreadable = Map<string, SlotsyncError>;

/** Returns the filter of a find for some of the names. */
type FilterOf = (names: readonly string[]) => Filter;
export const byIds: FilterOf = (ids) => ({ by: 'ids', ids });
export const byExtIds: FilterOf = (extIds) => ({ by: 'extIds', extIds });

interface Narrowing {
  /** Maximum number of pages that are requested at the same time. */
  atOnce?: number;
  unreadable?: Unreadable | undefined;
  /** External ids on which the service failed before. Each is requested alone, once. */
  suspects?: ReadonlySet<string> | undefined;
}

export const PAGES_AT_ONCE = 4;
/** Maximum number of ids in one find. */
const NAMED_AT_ONCE = 1000;
/** Consecutive failures that end a find by ids, before and after a first answer. The service then counts as down. */
const MOST_FAILURES = { before: 8, after: 20 };
/** Attempts with a single id, seconds apart, after which the id counts as the cause of the failures. */
const ATTEMPTS_ALONE = 3;

export type Finder = ReturnType<typeof createFinder>;

export function createFinder(
  { dialect, pageSize }: { dialect: CompleteDialect; pageSize: number },
  client: Client,
  patience: Patience,
) {
  const findWholePage = <T>({ kind, read }: Find<T>, filter: Filter, page: Page, context: Context) => {
    const { call, question } = client.find(kind, filter, page);
    return client.send(call, context, (body, { body: { length } }) => {
      const { results, ...answer } = dialect.find.read(body as Json, question);
      return {
        ...answer,
        results: results.map((found, at) => readAt(at, () => read(found as Json))),
        characters: length,
      };
    });
  };

  /** Reads one page of a find, in parts if it is too large. `skips` leaves out results on which the service fails. */
  const findPage = <T>(find: Find<T>, filter: Filter, page: Page, context: Context, skips = false) => {
    const ask = (part: Page) => findWholePage(find, filter, part, context);
    return patience(context, () => askInParts(ask, page, client.find(find.kind, filter).call, skips));
  };

  /** Reads all pages of a find. Each result occurs once. */
  const readFind = <T extends { id: string }>(
    find: Find<T>,
    filter: Filter,
    context: Context,
    bounds: { most?: number | undefined; atOnce?: number; ask?: typeof findPage } = {},
  ) => {
    const { ask = findPage, ...rest } = bounds;
    const reading = { call: client.find(find.kind, filter).call, pageSize, ...rest };
    return readPages((page) => ask<T>(find, filter, page, context), reading);
  };

  /** Maximum number of names in one find, by kind of filter. Lowered after a request was too large. */
  const namedAtOnce = new Map<Filter['by'], number>();

  /**
   * Finds objects or bookings by any number of names. If a name may have spoiled an answer, sends the find again in
   * halves.
   *
   * A name that fails alone is noted in `unreadable`; without `unreadable`, its error is thrown. Each name in
   * `suspects` is requested alone, once.
   */
  async function narrowNamed<T extends Ids>(
    find: Find<T>,
    names: readonly string[],
    filterOf: FilterOf,
    context: Context,
    { unreadable, suspects = new Set(), ...bounds }: Narrowing,
  ): Promise<T[]> {
    const { by } = filterOf(names);
    const { call } = client.find(find.kind, filterOf(names));
    const most = () => namedAtOnce.get(by) ?? NAMED_AT_ONCE;
    const results: T[] = [];
    const kept = countKept(call);
    let isAnswered = false;
    let failuresInRow = 0;

    /** Sends the finds one after the other. Returns the errors of ids that failed alone. */
    async function ask(parts: (readonly string[])[]): Promise<Map<string, unknown>> {
      const failed = new Map<string, unknown>();
      for (let part = parts.shift(); part; part = parts.shift()) {
        if (part.length > most()) {
          parts = [...slice(part, most()), ...parts];
          continue;
        }
        let found: Awaited<ReturnType<typeof readFind<T>>>;
        try {
          // The field values of one row may match very many objects. `findPage` reads a too large answer in parts.
          const ask = by === 'fields' && part.length === 1 ? findPage : findWholePage;
          found = await readFind(find, filterOf(part), context, { ...bounds, ask });
          if (by === 'extIds') find.requireAsked?.(found.results, part);
        } catch (error) {
          const [only] = part;
          if (only === undefined || !(isSpoiled(error) || refusedContent(error))) throw error;
          if (part.length > 1 && isRequestTooLarge(error)) {
            namedAtOnce.set(by, Math.min(most(), Math.ceil(part.length / 2)));
            parts.unshift(part);
            continue;
          }
          const isTooLarge = codeOf(error) === 'answer_too_large';
          if (!isTooLarge && ++failuresInRow >= MOST_FAILURES[isAnswered ? 'after' : 'before']) throw error;
          const halves = part.length > 1 ? slice(part, Math.ceil(part.length / 2)) : [];
          // After a failure, the remaining parts go first. If one of them is answered, the service is not down.
          parts = isTooLarge ? [...halves, ...parts] : [...parts, ...halves];
          if (part.length > 1) continue;
          if (isTooLarge)
            note(unreadable, only, answerTooLarge(call, 'it is for a single name', `'${only}'`));
          else failed.set(only, error);
          continue;
        }
        kept.add(found);
        for (const result of found.results) results.push(result);
        isAnswered = true;
        failuresInRow = 0;
      }
      return failed;
    }

    const others = names.filter((id) => !suspects.has(id));
    let failed = await ask(slice(others, most()));
    for (let attempt = 1; failed.size > 0 && attempt < ATTEMPTS_ALONE; attempt++) {
      // With `noPatience` the queue retries the batch. Other callers first check whether the service is up.
      if (!isAnswered && (patience === noPatience || !(await isUp(context)))) throw [...failed.values()][0];
      await pause(retryDelayMs(attempt), context.signal);
      failed = await ask([...failed.keys()].map((id) => [id]));
    }
    const known = await ask(names.filter((id) => suspects.has(id)).map((id) => [id]));
    for (const [id, error] of [...failed, ...known]) note(unreadable, id, failsOnFound(error, id));
    return results;
  }

  /** Returns true if the service answers a find of types, so that it fails only on some objects. */
  const isUp = (context: Context) =>
    client.send(client.find('types').call, context, () => true).catch(() => false);

  return {
    findPage,
    readFind,
    /** Finds by names. Repeats the find while the service fails, as long as the caller's patience lasts. */
    findNamed: <T extends Ids>(
      find: Find<T>,
      names: readonly string[],
      filterOf: FilterOf,
      context: Context,
      narrowing: Narrowing = {},
    ) => patience(context, () => narrowNamed(find, names, filterOf, context, narrowing)),
  };
}

/** Reads one result of a page. Adds the result's position in the answer to the error. */
function readAt<T>(at: number, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof NotUnderstood)) throw error;
    const isPlace = /^[\w.]+: /.test(error.message) && !error.more.remedy;
    throw new NotUnderstood('', `results.${at}${isPlace ? '.' : ': '}${error.message}`, error.more);
  }
}

/** Notes why an object cannot be read. Throws the reason if the caller does not collect reasons. */
export function note(unreadable: Unreadable | undefined, id: string, reason: SlotsyncError): void {
  if (!unreadable) throw reason;
  unreadable.set(id, reason);
}

const slice = <T>(list: readonly T[], length: number): (readonly T[])[] =>
  Array.from({ length: Math.ceil(list.length / length) }, (_, at) =>
    list.slice(at * length, (at + 1) * length),
  );

// Patience repeats the finds of commands while the service fails. A queue would do so, but commands have no queue.

/** Milliseconds without an answer after which a query is given up; about as long as a plan is retried. */
const LONGEST_MS = 3 * 60 * 1000;

/** Repeats a query while it fails for a temporary reason. Throws the last error, or the signal's reason. */
export type Patience = <T>(context: Pick<Context, 'signal'>, read: () => Promise<T>) => Promise<T>;

/** Throws every failure at once, for callers whose queue retries. */
export const noPatience: Patience = (_, read) => read();

/** `isMet` returns true once the service has answered. Before that, an unreachable address counts as a wrong one. */
export function createPatience(log: Logger, isMet: () => boolean, clock = () => performance.now()): Patience {
  /** Time of the first failure since the latest answer. */
  let failingSince: number | undefined;
  return async ({ signal }, read) => {
    for (let attempts = 1; ; attempts++) {
      try {
        const answer = await read();
        failingSince = undefined;
        return answer;
      } catch (error) {
        failingSince ??= clock();
        if (!mayPass(error, isMet) || clock() - failingSince > LONGEST_MS) throw error;
        const afterMs = retryDelayMs(attempts);
        log.warn({ code: codeOf(error), afterMs }, 'retrying a find, because the service does not answer');
        await pause(afterMs, signal);
      }
    }
  };
}

/** Waits, or throws the signal's reason when the signal aborts. */
async function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  await sleep(ms, undefined, signal ? { signal } : {}).catch(() => signal?.throwIfAborted());
}

function mayPass(error: unknown, isMet: () => boolean): boolean {
  if (!(error instanceof SlotsyncError)) return false;
  const { code, facts } = error;
  if (code === 'service_unreachable') return isMet();
  // A gateway's answer below 500 may come from a wrong address, which waiting does not mend.
  if (code === 'gateway_answered') return Number(facts['status']) >= 500;
  return code === 'service_failed' || code === 'answer_lost';
}
