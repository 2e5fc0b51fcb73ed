// The service without its sockets: what it stores, the table of its endpoints, and what a rehearsal controls in it.
import type { z } from 'zod';
import { createSelectReservations, reservationFind, createReservations } from './reservations.js';
import {
  createRouter,
  endpoint,
  Refusal,
  type Endpoint,
  type ReceivedRequest,
  type SandboxAnswer,
} from './http.js';
import type { Identified, IdStore } from './id-store.js';
import { createObjects, objectFind, type ObjectOptions } from './object-store.js';
import { find, findPage, type FindRequest, type FindSelection } from './paging.js';
import { createPutObjects, putBody, upsertBody, type PutOptions } from './put-objects.js';
import { createRequestSteps, type StepOptions } from './request-steps.js';
import { createSchema, type SandboxSchema } from './schema.js';
import { createTokens, type AccessOptions } from './tokens.js';

/** The recorded answer of one endpoint, sent to every request for its method and path. `{}` in a path matches any one part of it. */
export interface FixedAnswer {
  method: string;
  path: string;
  status: number;
  answered?: unknown;
}

export type Answers = (request: ReceivedRequest) => SandboxAnswer;

export interface ServiceOptions extends AccessOptions, ObjectOptions, PutOptions, StepOptions {
  /** Without one every type is unknown. */
  schema?: SandboxSchema | undefined;
  /** Most results on one page; a greater limit is lowered to it. */
  maxPage?: number | undefined;
  /** So many pages at the end of a find are empty, although its answers count them. */
  missingPages?: number | undefined;
  /** Answers in another dialect, with the help of the sandbox's own answers. */
  speech?: ((native: Answers) => Answers) | undefined;
  /** Whether finds of reservations honour `modified`. */
  honoursModified?: boolean | undefined;
}

/** The service until `signal` aborts; then the requests on their way are dropped. */
export function createService(options: ServiceOptions, signal: AbortSignal) {
  const { maxPage = 1000, honoursModified = true } = options;
  let { missingPages = 0 } = options;
  const schema = createSchema(options.schema);
  const objects = createObjects(schema, options);
  const reservations = createReservations();
  const tokens = createTokens(options);
  const put = createPutObjects({ schema, objects }, options);
  const selectReservations = createSelectReservations({ schema, objects }, honoursModified);

  const finding = <T extends Identified, F extends FindRequest>(
    noun: string,
    body: z.ZodType<F>,
    store: IdStore<T>,
    select: (request: F) => FindSelection<T>,
  ) =>
    endpoint('POST', `/v1/${noun}/find`, body, (request) =>
      findPage(store, request, select(request), { maxPage, missingPages }),
    );
  const withToken = (row: Endpoint): Endpoint => ({
    ...row,
    answer(request, name) {
      tokens.requireToken(request.headers);
      if (!/^application\/json\b/i.test(request.headers['content-type'] ?? ''))
        throw new Refusal(415, 'content-type application/json expected');
      return row.answer(request, name);
    },
  });
  const authenticate = '/v1/organizations/{}/api-keys/authenticate';
  const native = createRouter([
    endpoint('POST', authenticate, undefined, (_body, organization, { headers }) =>
      tokens.authenticate(organization, headers),
    ),
    ...[
      endpoint('PUT', '/v1/objects', putBody, put.putObjects, put.statusOf),
      endpoint('POST', '/v1/objects/upsert', upsertBody, put.putObjects, put.statusOf),
      finding('objects', objectFind, objects.store, objects.selectObjects),
      finding('types', find, schema.types, selectNames),
      finding('fields', find, schema.fields, selectNames),
      finding('reservations', reservationFind, reservations.stores.reservations, selectReservations),
      finding('cancellations', reservationFind, reservations.stores.cancellations, selectReservations),
    ].map(withToken),
  ]);
  const answer = options.speech?.(native) ?? native;
  const steps = createRequestSteps(options, answer, signal);

  return {
    process: steps.process,
    /** Everything that a rehearsal can see and do and that the service itself does not offer. */
    controls: {
      ...schema.controls,
      ...objects.controls,
      ...put.controls,
      ...reservations.controls,
      ...tokens.controls,
      ...steps.controls,
      /** From now on so many pages at the end of every find are empty, although its answers count them. */
      setMissingPages: (pages: number): void => void (missingPages = pages),
    },
  };
}

export type SandboxControls = ReturnType<typeof createService>['controls'];

/** Types and fields are shown by name. */
function selectNames(): FindSelection<Identified & { name?: string | undefined }> {
  return { show: ({ id, extId, name = extId ?? undefined }) => ({ id, extId, name }) };
}

/** A `speech` that has only these answers. */
export function playContract(answers: readonly FixedAnswer[]): () => Answers {
  const rows = answers.map(({ method, path, status, answered }) =>
    endpoint(
      method,
      path.split('?')[0] ?? '',
      undefined,
      () => answered,
      () => status,
    ),
  );
  return () => createRouter(rows);
}
