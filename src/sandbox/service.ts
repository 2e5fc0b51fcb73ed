// The simulated service without its sockets: its stores, its table of endpoints, and the controls for a rehearsal.
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
import {
  type Identified,
  type IdStore,
  find,
  findPage,
  type FindRequest,
  type FindSelection,
} from './stores.js';
import { createObjects, objectFind, type ObjectOptions } from './object-store.js';
import { createPutObjects, putBody, upsertBody, type PutOptions } from './put-objects.js';
import { createRequestSteps, type StepOptions } from './request-steps.js';
import { createSchema, type SandboxSchema } from './schema.js';
import { randomBytes } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';

/** A recorded answer for all requests with this method and path. `{}` in the path matches any one segment. */
interface FixedAnswer {
  method: string;
  path: string;
  status: number;
  answered?: unknown;
}

type Answers = (request: ReceivedRequest) => SandboxAnswer;

export interface ServiceOptions extends AccessOptions, ObjectOptions, PutOptions, StepOptions {
  /** Types and fields. If undefined, every type is unknown. */
  schema?: SandboxSchema | undefined;
  /** Maximum number of results on one page. A greater limit is lowered to this number. */
  maxPage?: number | undefined;
  /** Number of pages at the end of a find that are empty although its answers count them. */
  missingPages?: number | undefined;
  /** Returns a function that answers in another dialect, with the help of the sandbox's own answers (`native`). */
  speech?: ((native: Answers) => Answers) | undefined;
  /** If true, finds of reservations honour the filter `modified`. */
  honoursModified?: boolean | undefined;
}

/** Creates the service. When `signal` aborts, requests in progress are dropped. */
export function createService(options: ServiceOptions, signal: AbortSignal) {
  const { maxPage = 1000, honoursModified = true } = options;
  let { missingPages = 0 } = options;
  const schema = createSchema(options.schema);
  const objects = createObjects(schema, options);
  const reservations = createReservations();
  const tokens = createTokens(options);
  const put = createPutObjects({ schema, objects }, options);
  const selectReservations = createSelectReservations(schema, honoursModified);

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
    /** Functions by which a rehearsal observes and controls the sandbox. The real service has no such functions. */
    controls: {
      ...schema.controls,
      ...objects.controls,
      ...put.controls,
      ...reservations.controls,
      ...tokens.controls,
      ...steps.controls,
      /**
       * Simulates a wrong total: the last `pages` pages of every find are empty, although the page count in each answer
       * includes them.
       */
      setMissingPages: (pages: number): void => void (missingPages = pages),
    },
  };
}

export type SandboxControls = ReturnType<typeof createService>['controls'];

function selectNames(): FindSelection<Identified & { name?: string | undefined }> {
  return { show: ({ id, extId, name = extId ?? undefined }) => ({ id, extId, name }) };
}

/** Returns a `speech` that answers only with these recorded answers. */
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

// The API key, and the short-lived tokens that a client gets for it. Tokens have the form of JWTs. The sandbox itself
// remembers which tokens are valid, so a token also expires without an `exp` claim.

interface AccessOptions {
  organizationId?: string | undefined;
  apiKey?: string | undefined;
  region?: string | undefined;
  tokenSeconds?: number | undefined;
  /** If false, tokens have no `exp` claim. They expire nevertheless. */
  tokenExp?: boolean | undefined;
  expiredStatus?: 401 | 403 | undefined;
}

function createTokens(options: AccessOptions) {
  const { organizationId = 'demo', region = 'EU_EES' } = options;
  const { tokenSeconds = 300, tokenExp = true, expiredStatus = 401 } = options;
  let { apiKey = 'sandbox-key' } = options;
  const endsAtMs = new Map<string, number>();

  function issue(): string {
    const now = Date.now();
    const ends = now + tokenSeconds * 1000;
    const exp = tokenExp ? { exp: Math.floor(ends / 1000) } : {};
    const claims = { sub: organizationId, iat: Math.floor(now / 1000), ...exp };
    const signature = randomBytes(32).toString('base64url');
    const token = `${encode({ alg: 'HS256', typ: 'JWT' })}.${encode(claims)}.${signature}`;
    endsAtMs.set(token, ends);
    return token;
  }

  return {
    /** Returns a token for the right key, organization and region. Otherwise throws a 401 Refusal. */
    authenticate(organization: string, headers: IncomingHttpHeaders): { token: string } {
      if (headers.authorization !== `Api-Key ${apiKey}`) throw new Refusal(401, 'API key not accepted');
      if (organization !== organizationId)
        throw new Refusal(401, 'API key does not belong to this organization');
      if (headers['x-region'] !== region)
        throw new Refusal(401, `X-Region ${region} expected for this organization`);
      return { token: issue() };
    },
    /** Throws a Refusal unless the request has a valid token. */
    requireToken({ authorization = '' }: IncomingHttpHeaders): void {
      const token = /^Bearer (.+)$/.exec(authorization)?.[1];
      if (token === undefined) throw new Refusal(401, 'Authorization: Bearer <token> expected');
      const ends = endsAtMs.get(token);
      if (ends === undefined) throw new Refusal(401, 'token not accepted');
      if (Date.now() >= ends) throw new Refusal(expiredStatus, 'token expired or revoked');
    },
    controls: {
      /** Replaces the accepted API key. Issued tokens stay valid. */
      setApiKey: (key: string): void => void (apiKey = key),
      revokeTokens(): void {
        for (const token of endsAtMs.keys()) endsAtMs.set(token, 0);
      },
    },
  };
}

function encode(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url');
}
