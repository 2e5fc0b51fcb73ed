// The scheduling service as the use cases see it: one function for each request, with our own types.
import { DEFAULT_DIALECT, type CompleteDialect } from '../dialect/complete-dialect.js';
import type { PutObject } from '../dialect/dialect.js';
import type { Place } from '../process/tracing.js';
import type { ExternalIdRule } from '../streams/external-id-rule.js';
import { createClient, untilAnswered, type Client, type ClientOptions } from './client.js';
import type { Context } from './exchange.js';
import { createObjectFinds } from './find-objects.js';
import { createFinder, createPatience, noPatience, type Patience } from './find-pages.js';
import { createReservationFinds } from './find-reservations.js';
import { matchResults, type PutResult } from './match-results.js';
import { createProbes } from './probes.js';
import { createReader } from './read-answers.js';

export type { PutObject } from '../dialect/dialect.js';
export type { Unreadable } from './find-pages.js';
export type {
  Cancellation,
  Found,
  Period,
  Reservation,
  ReservationSelection,
  UpcomingReservation,
} from './find-reservations.js';
export type { PutResult } from './match-results.js';
export type { Probed } from './probes.js';
export type { FoundObject, ServiceObject } from './read-answers.js';

interface DestinationOptions extends Omit<ClientOptions, 'dialect'> {
  dialect?: CompleteDialect;
  pageSize: number;
  searchByFields?: boolean;
  assignExternalIds?: boolean;
  canChangeTypes?: boolean;
  derivedFields?: boolean;
  externalIds?: ExternalIdRule | undefined;
  /** Seconds after the request timeout within which the service may still carry out a write whose answer was lost. */
  lateWriteSeconds: number;
}

/** A type or a field. Without an external id, a configuration cannot refer to it. */
export interface Definition {
  id: string;
  extId: string | undefined;
  name: string | undefined;
}

export type Destination = ReturnType<typeof openDestination>;

/**
 * Opens the service. All functions throw only SlotsyncError or the signal's reason. `patient` is a variant for commands
 * that only read: while the service fails, it sends finds again.
 */
export function createDestination(given: DestinationOptions): Destination & { patient: Destination } {
  const options = { ...given, dialect: given.dialect ?? DEFAULT_DIALECT };
  const client = createClient(options);
  const patience = createPatience(options.log, () => client.meanLatencyMs() !== undefined);
  return {
    ...openDestination(options, client, noPatience),
    patient: openDestination(options, client, patience),
  };
}

function openDestination(
  options: DestinationOptions & { dialect: CompleteDialect },
  client: Client,
  patience: Patience,
) {
  const { dialect, api, pageSize, requestTimeoutMs } = options;
  const callOf = (extId: string) => client.find('objects', { by: 'extIds', extIds: [extId] }).call;
  const reader = createReader(options, callOf);
  const finder = createFinder(options, client, patience);
  const { finds, rule, toKey } = reader;

  const readDefinitions = async (kind: 'types' | 'fields', context: Context, extIds?: readonly string[]) => {
    const filter = extIds ? ({ by: 'extIds', extIds } as const) : ({ by: 'none' } as const);
    const { results } = await finder.readFind(finds[kind], filter, context);
    return results.map(({ id, extId, name }): Definition => ({
      id,
      extId: extId ?? undefined,
      name: name ?? undefined,
    }));
  };

  /** Opens a PUT. The caller decides what to write only after it has taken a slot: see `openRequest`. */
  function openPut(context: Context) {
    const request = client.openRequest(client.callOf('objects', dialect.write), context);
    const toMessage = (result: PutResult): PutResult =>
      result.accepted ? result : { ...result, message: client.toMessage(result.message) };
    return {
      takeSlot: request.takeSlot,
      hasSlot: request.hasSlot,
      /** Writes with the slot from `takeSlot`. Returns results by external id: see `matchResults`. */
      send: (objects: readonly PutObject[], sharedBy: readonly Place[] = []) => {
        const written = rule ? objects.map(spell) : objects;
        return request.send(
          dialect.write.body(written),
          (body, { status }) => {
            const results = matchResults(objects, dialect.write.read(body, written, status), toKey);
            return new Map([...results].map(([extId, result]) => [extId, toMessage(result)]));
          },
          { attributes: { 'slotsync.objects': objects.length }, links: sharedBy },
        );
      },
      end: request.end,
    };
  }

  return {
    /** Obtains a token. Throws if the key, organization, region or address is wrong. */
    authenticate: () => patience({}, client.authenticate),
    meanLatencyMs: client.meanLatencyMs,
    requestTimeoutMs,
    /** Milliseconds after sending within which the service may still carry out a write whose answer was lost. */
    lateWriteMs: requestTimeoutMs + options.lateWriteSeconds * 1000,
    binding: { baseUrl: api.baseUrl, organizationId: api.organizationId, region: api.region },
    /** Seconds after a write during which a find may still return the state before the write. */
    findLagSeconds: dialect.findLagSeconds,
    requests: client.requests,
    observe: client.observe,
    maintained: reader.maintained,
    pageSize,
    /** True if the service keeps fields that a write does not name. */
    patches: dialect.write.patches,
    externalIds: rule,
    /** True if a PUT with an object's number may set its external id. */
    assignsExternalIds: options.assignExternalIds ?? false,
    canChangeTypes: options.canChangeTypes ?? false,

    ...createObjectFinds(options, client, finder, reader),
    ...createReservationFinds(pageSize, client, finder, reader),
    ...createProbes(options, client, finder, reader),
    /** Returns the service's types with these external ids; by default all, including types without one. */
    findTypes: (context: Context, extIds?: readonly string[]) => readDefinitions('types', context, extIds),
    /** Returns the service's fields with these external ids; by default all, including fields without one. */
    findFields: (context: Context, extIds?: readonly string[]) => readDefinitions('fields', context, extIds),

    openPut,
    /** Writes complete objects. The result has no entry for an object that the service did not mention. */
    putObjects(objects: readonly PutObject[], context: Context): Promise<Map<string, PutResult>> {
      const request = openPut(context);
      return untilAnswered(request, () => request.send(objects));
    },

    close: client.close,
  };
}

/** Returns the object under the external id as the row spells it. */
const spell = ({ spelling, ...object }: PutObject): PutObject => ({
  ...object,
  extId: spelling ?? object.extId,
});
