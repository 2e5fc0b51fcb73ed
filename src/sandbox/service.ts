// The service without its sockets: what it stores, the table of its endpoints, and what a rehearsal controls in it.
import type { z } from 'zod';
import { createFindReservations, reservationFind } from './find-reservations.js';
import { Refusal } from './http.js';
import type { Identified } from './id-store.js';
import { createObjects, objectFind } from './object-store.js';
import { find, findPage } from './paging.js';
import type { FindRequest } from './paging.js';
import { createPutObjects, putBody } from './put-objects.js';
import type { PutOptions } from './put-objects.js';
import { createRequestSteps } from './request-steps.js';
import type { StepOptions } from './request-steps.js';
import { createReservations } from './reservation-store.js';
import { createRouter, endpoint } from './router.js';
import type { Endpoint } from './router.js';
import { createSchema } from './schema.js';
import type { SandboxSchema } from './schema.js';
import { createTokens } from './tokens.js';
import type { AccessOptions } from './tokens.js';

export interface ServiceOptions extends AccessOptions, PutOptions, StepOptions {
  /** Without one every type is unknown. */
  schema?: SandboxSchema | undefined;
  /** Most results on one page; a greater limit is lowered to it. */
  maxPage?: number | undefined;
  /** Whether finds of reservations honour `modified`. */
  honoursModified?: boolean | undefined;
}

/** The service until `signal` aborts; then the requests on their way are dropped. */
export function createService(options: ServiceOptions, signal: AbortSignal) {
  const { maxPage = 1000, honoursModified = true } = options;
  const schema = createSchema(options.schema);
  const objects = createObjects(schema);
  const reservations = createReservations();
  const tokens = createTokens(options);
  const put = createPutObjects({ schema, objects }, options);
  const finds = createFindReservations({ schema, objects, reservations }, honoursModified);

  const names = {
    show: ({ id, extId, name = extId }: Identified & { name?: string | undefined }) => ({ id, extId, name }),
  };
  const finding = <T extends FindRequest>(noun: string, body: z.ZodType<T>, work: (request: T) => unknown) =>
    endpoint('POST', `/v1/${noun}/find`, body, (request) =>
      work({ ...request, limit: Math.min(request.limit, maxPage) }),
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
  const answer = createRouter([
    endpoint('POST', authenticate, undefined, (_body, organization, { headers }) =>
      tokens.authenticate(organization, headers),
    ),
    ...[
      endpoint('PUT', '/v1/objects', putBody, put.putObjects, put.statusOf),
      finding('objects', objectFind, objects.findObjects),
      finding('types', find, (request) => findPage(schema.types, request, names)),
      finding('fields', find, (request) => findPage(schema.fields, request, names)),
      finding('reservations', reservationFind, finds.findReservations),
      finding('cancellations', reservationFind, finds.findCancellations),
    ].map(withToken),
  ]);
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
    },
  };
}

export type SandboxControls = ReturnType<typeof createService>['controls'];
