// Probes of `slotsync check`: single finds that show how the service answers.
import type { Filter, FoundCancellation, FoundObject, FoundReservation } from '../dialect/dialect.js';
import { codeOf } from '../errors/errors.js';
import type { CompleteDialect } from '../dialect/complete-dialect.js';
import { ONE_RESULT, type Client } from './client.js';
import type { Context } from './exchange.js';
import type { ErrorBodies } from './failure-text.js';
import type { Finder } from './find-pages.js';
import { inMilliseconds, type Period } from './find-reservations.js';
import { isFaulty, type Find, type Reader } from './read-answers.js';

/** Number of reservations or cancellations that a probe reads to check whether they can be understood. */
const PROBED = 100;

export interface Probed {
  objects: FoundObject;
  reservations: FoundReservation;
  cancellations: FoundCancellation;
}

export function createProbes(
  { dialect, errorBodies }: { dialect: CompleteDialect; errorBodies: ErrorBodies },
  client: Client,
  { findPage }: Finder,
  { finds, faultOf }: Reader,
) {
  return {
    /**
     * Returns true if finds of reservations honour the filter `modified`. A find for changes of the day after tomorrow
     * must then return nothing. `now` is in milliseconds.
     */
    async honoursModified(now: number, context: Context): Promise<boolean> {
      const from = Math.floor(now / 1000) + 24 * 60 * 60;
      const filter = { by: 'modified', ...inMilliseconds({ from, to: from + 24 * 60 * 60 }) } as const;
      return (await findPage(finds.reservations, filter, ONE_RESULT, context)).results.length === 0;
    },

    /** Reads one page of a find, to check whether the answer can be understood. Times are in Unix seconds. */
    async probe<K extends keyof Probed>(kind: K, window: Period, context: Context) {
      const find = finds[kind] as Find<Probed[K]>;
      const answer =
        kind === 'objects'
          ? await findPage(find, { by: 'none' }, ONE_RESULT, context)
          : await findPage(
              find,
              { by: 'window', ...inMilliseconds(window) },
              { page: 1, limit: PROBED },
              context,
            );
      for (const found of answer.results) if (isFaulty(found)) throw faultOf(found);
      return answer;
    },

    /** Searches one page for objects with this value in this field. `others` is the number of objects without it. */
    async probeFields(typeId: string, fieldId: string, value: string, context: Context) {
      const filter: Filter = { by: 'fields', typeId, fields: [{ fieldId, values: [value] }] };
      const { results } = await findPage(finds.listed, filter, ONE_RESULT, context);
      const found = results.filter(
        (one) =>
          !isFaulty(one) &&
          one.fields.some((field) => field.fieldId === fieldId && field.values?.includes(value)),
      ).length;
      return { found, others: results.length - found };
    },

    /**
     * Sends a find that the service must refuse, and returns whether the error is JSON. Returns undefined if the
     * service refuses nothing, or if `errorBodies` accepts every body.
     */
    async probeErrors(context: Context): Promise<'json' | 'other' | undefined> {
      if (errorBodies === 'any') return undefined;
      try {
        await client.send(client.callOf('findObjects', dialect.error.ask()), context, () => true);
        return undefined;
      } catch (error) {
        const code = codeOf(error);
        if (code === 'gateway_answered') return 'other';
        if (code === 'refused' || code === 'service_failed') return 'json';
        throw error;
      }
    },
  };
}
