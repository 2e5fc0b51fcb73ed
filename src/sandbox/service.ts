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

/** The recorded answer of one endpoint, sent to every request for its method and path. `{}` in a path matches any one part of it. */
interface FixedAnswer {
  method: string;
  path: string;
  status: number;
  answered?: unknown;
}

type Answers = (request: ReceivedRequest) => SandboxAnswer;

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

// The API key and the short-lived tokens that it is exchanged for. Tokens are shaped as JWTs. One is valid when it was
// issued here and has not expired; the memory decides that, with or without `exp` in the token.

interface AccessOptions {
  organizationId?: string | undefined;
  apiKey?: string | undefined;
  region?: string | undefined;
  tokenSeconds?: number | undefined;
  /** False: the JWT does not say when it expires. It expires all the same. */
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
    /** A token for the right key, organization and region; throws a 401 otherwise. */
    authenticate(organization: string, headers: IncomingHttpHeaders): { token: string } {
      if (headers.authorization !== `Api-Key ${apiKey}`) throw new Refusal(401, 'API key not accepted');
      if (organization !== organizationId)
        throw new Refusal(401, 'API key does not belong to this organization');
      if (headers['x-region'] !== region)
        throw new Refusal(401, `X-Region ${region} expected for this organization`);
      return { token: issue() };
    },
    /** Throws a `Refusal` unless the request has a valid token. */
    requireToken({ authorization = '' }: IncomingHttpHeaders): void {
      const token = /^Bearer (.+)$/.exec(authorization)?.[1];
      if (token === undefined) throw new Refusal(401, 'Authorization: Bearer <token> expected');
      const ends = endsAtMs.get(token);
      if (ends === undefined) throw new Refusal(401, 'token not accepted');
      if (Date.now() >= ends) throw new Refusal(expiredStatus, 'token expired or revoked');
    },
    controls: {
      /** Only this key is accepted from now on. Tokens stay as they are. */
      setApiKey: (key: string): void => void (apiKey = key),
      /** Every token issued so far is refused from now on. */
      revokeTokens(): void {
        for (const token of endsAtMs.keys()) endsAtMs.set(token, 0);
      },
    },
  };
}

function encode(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url');
}
