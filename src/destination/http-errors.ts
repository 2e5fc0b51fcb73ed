// From an answer that is not 2xx, or none at all, to the error that says what happens next.
import { remedyFor } from '../errors/error-catalogue.js';
import { NotUnderstood, type Kind, type Method } from '../dialect/dialect.js';
import { codeOf, messageOf, SlotsyncError } from '../errors/errors.js';
import { TimeoutError } from '../time/deadline.js';
import { ProxyFailure } from './connections.js';
import { describeShape, shapeOf } from '../text/json-shape.js';
import { isForeignText, readFailure, type FailureReading } from './failure-text.js';
import { findExcess } from './read-body.js';

/** The purpose of a request, whatever its path. */
export type Endpoint = 'authenticate' | 'objects' | `find${Capitalize<Kind>}`;

export interface Call {
  method: Method;
  /** Without the query. */
  path: string;
  /** Begins with `?`; empty without one. It may hold values of records, or the key, so no message and no log has it. */
  query: string;
  endpoint: Endpoint;
  body?: unknown;
}

/** A request in a message. */
export type Named = Pick<Call, 'method' | 'path'>;

export interface Answer {
  status: number;
  /** The header as it came. */
  retryAfter: string | string[] | undefined;
  body: string;
}

/** `service`: its own body. `page`: markup, as a gateway answers. `other`: no body, or another text. */
type Body = 'service' | 'page' | 'other';

/** Meaning of an answer: its body is read, the request is sent again (exchange.ts), or the error with this code. */
export type Meaning =
  'read' | 'throttled' | 'redirected' | 'unauthorized' | 'gateway_answered' | 'refused' | 'service_failed';

/** Statuses of a request whose body, address or headers are too large for whoever answers: smaller requests help. */
const TOO_LARGE = [413, 414, 431];

/** Statuses of a PUT that is refused for what it holds, rather than for who asks or when: it is sent again in parts. */
const REFUSED_CONTENT = [400, 404, 409, 410, 412, 422, 423, ...TOO_LARGE];

type Statuses = readonly number[] | { from: number; to: number };

/** Meanings of all statuses. The first line that fits decides; without `body` or `of` a line fits any. */
const MEANINGS: readonly { on: Statuses; of?: 'authenticate'; body?: readonly Body[]; is: Meaning }[] = [
  { on: { from: 200, to: 299 }, is: 'read' },
  { on: { from: 300, to: 399 }, is: 'redirected' },
  { on: [429], is: 'throttled' },
  { on: [401], is: 'unauthorized' },
  { on: { from: 400, to: 499 }, of: 'authenticate', body: ['service', 'other'], is: 'unauthorized' },
  { on: TOO_LARGE, is: 'refused' },
  { on: { from: 100, to: 599 }, body: ['page', 'other'], is: 'gateway_answered' },
  { on: { from: 100, to: 199 }, is: 'gateway_answered' },
  { on: [403], is: 'unauthorized' },
  { on: [408, 425], is: 'service_failed' },
  { on: { from: 400, to: 499 }, is: 'refused' },
];

/** Meaning of an answer to a request. A status that no line has, 500 and above, is a failure of the service. */
export function meaningOf(status: number, { endpoint }: Pick<Call, 'endpoint'>, body: Body): Meaning {
  const found = MEANINGS.find(
    ({ on, of, body: bodies }) =>
      ('from' in on ? status >= on.from && status <= on.to : on.includes(status)) &&
      (of === undefined || endpoint === of) &&
      (bodies?.includes(body) ?? true),
  );
  return found?.is ?? 'service_failed';
}

/** The status of a request that was refused for what it holds; undefined: another error. */
export function refusedContent(error: unknown): number | undefined {
  if (!(error instanceof SlotsyncError) || error.code !== 'refused') return undefined;
  return REFUSED_CONTENT.find((status) => status === error.facts['status']);
}

/** Tells whether a request was too large. */
export const isRequestTooLarge = (error: unknown): boolean => TOO_LARGE.includes(refusedContent(error) ?? 0);

/** Failures of a request that may come of one object in it. */
const SPOILED = new Set([
  'answer_invalid',
  'answer_lost',
  'answer_too_large',
  'gateway_answered',
  'service_failed',
]);

/** Tells whether one object in a request may have caused its failure. */
export const isSpoiled = (error: unknown): boolean => SPOILED.has(codeOf(error));

/** The parsed body of a 2xx answer; every other answer is thrown as an error. */
export function parseAnswer(
  { status, body }: Pick<Answer, 'status' | 'body'>,
  call: Call,
  reading: FailureReading,
): unknown {
  if (status < 200 || status >= 300) throw errorOf(status, call, body, readFailure(body, reading));
  const excess = findExcess(body);
  if (excess) throw (excess.isLarge ? answerTooLarge : invalidAnswer)(call, `its JSON is ${excess.what}`);
  if (body === '') return undefined;
  try {
    return JSON.parse(body) as unknown;
  } catch {
    // The parser's own message repeats a part of the body.
    throw isForeignText(body) ? gatewayAnswered(status, call) : invalidAnswer(call, 'its body is not JSON');
  }
}

/** `detail`: what the service says of it; undefined when the body is not the service's. */
function errorOf(status: number, call: Call, body: string, detail: string | undefined): SlotsyncError {
  const { method, path, endpoint } = call;
  const kind = detail !== undefined ? 'service' : /^\s*</.test(body) ? 'page' : 'other';
  const code = meaningOf(status, call, kind);
  if (code === 'gateway_answered') return gatewayAnswered(status, call);
  const isSignIn = code === 'unauthorized' && endpoint === 'authenticate';
  const message = isSignIn
    ? `the service did not accept the key (${status})`
    : `${method} ${path} answered ${status}`;
  const remedy = isSignIn
    ? 'Check API_KEY, API_ORGANIZATION_ID, API_REGION and API_BASE_URL: all four belong to one environment. Known regions: EU_EES, ANZ, SGP, UK.'
    : code === 'unauthorized'
      ? 'The key is valid but lacks the right, or was withdrawn: check its rights at the service.'
      : status === 413
        ? remedyFor('refused_413')
        : undefined;
  return new SlotsyncError(code === 'read' ? 'answer_invalid' : code, message, {
    facts: { method, path, status },
    remedy,
    detail,
  });
}

/** The service permits other requests with the same token: it forbids this kind of request. Other errors stay as they are. */
export function forbidden(error: unknown): unknown {
  if (!(error instanceof SlotsyncError) || error.code !== 'unauthorized') return error;
  const { message, facts, detail } = error;
  return new SlotsyncError('forbidden', message, { facts, detail });
}

/** Somebody else answered in the service's place. The body is kept out of it: it says nothing of any object. */
function gatewayAnswered(status: number, { method, path }: Named): SlotsyncError {
  const message = `${method} ${path} answered ${status}, and the body is not the service’s JSON`;
  return new SlotsyncError('gateway_answered', message, { facts: { method, path, status } });
}

/** The answer is not what the dialect describes. The service may have carried a write out. */
export function invalidAnswer(
  { method, path }: Named,
  what: string,
  detail?: string,
  remedy?: string,
): SlotsyncError {
  return new SlotsyncError('answer_invalid', `${method} ${path}: the answer cannot be understood: ${what}`, {
    facts: { method, path },
    detail,
    remedy,
  });
}

/** Characters of a shape in a message. */
const MOST_SHAPE = 200;

/** Reads an answer by the dialect. Throws `answer_invalid` when it cannot be understood: with its keys and types, without values. */
export function understand<T>(call: Named, body: unknown, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof NotUnderstood)) throw error;
    const shape = describeShape(shapeOf(body));
    const came = shape.length > MOST_SHAPE ? `${shape.slice(0, MOST_SHAPE)}…` : shape;
    throw invalidAnswer(call, `${error.message}; what came is ${came}`, error.more.detail, error.more.remedy);
  }
}

/** There is more in the answer than is read. A request for less may succeed. */
export function answerTooLarge({ method, path }: Named, what: string, detail?: string): SlotsyncError {
  const message = `${method} ${path}: the answer is too large: ${what}`;
  return new SlotsyncError('answer_too_large', message, { facts: { method, path }, detail });
}

/** The answer names another object than was asked for. */
export function answeredOtherwise(what: string): SlotsyncError {
  return new SlotsyncError('answer_contradicts', 'the answer names another object than was asked for', {
    detail: what,
  });
}

/** The service fails, or refuses, each time this object is asked for, and answers others. */
export function failsOnFound(error: unknown, id: string): SlotsyncError {
  const { facts = {}, detail = '' } = error instanceof SlotsyncError ? error : {};
  const message = `${messageOf(error)}; it failed each time this object was asked for, and others were answered`;
  return new SlotsyncError('service_fails_on_object', message, {
    facts,
    detail: [`'${id}'`, detail].filter(Boolean).join(': '),
    cause: error,
  });
}

/** The error for a request that got no answer. A write that was sent may have been carried out. */
export function asTransportError(
  error: unknown,
  { method, path, endpoint }: Call,
  isSent: boolean,
): SlotsyncError {
  const isTimeout = error instanceof TimeoutError;
  const reason = isTimeout ? 'timeout' : codeOf(error);
  if (isSent) {
    const may = endpoint === 'objects' ? '; the service may have carried it out' : '';
    const message = `${method} ${path}: no answer arrived (${reason})${may}`;
    return new SlotsyncError('answer_lost', message, { facts: { method, path, reason }, cause: error });
  }
  const isProxy = error instanceof ProxyFailure;
  const what = isProxy
    ? `the proxy does not connect to the service (${error.message})`
    : `the service cannot be reached (${reason})`;
  return new SlotsyncError('service_unreachable', `${what}; nothing was sent`, {
    facts: { method, path, reason: isProxy ? 'proxy' : reason },
    remedy: isProxy ? CHECK_PROXY : remedyOfHandshake(reason),
    cause: error,
  });
}

const CHECK_PROXY =
  'Check HTTPS_PROXY, with user and password, or name the service in NO_PROXY. Then: slotsync check';

/** The remedy for a connection whose encryption failed; undefined: it failed before. */
function remedyOfHandshake(code: string): string | undefined {
  if (code === 'EPROTO' || code.startsWith('ERR_SSL_'))
    return 'Check the port in API_BASE_URL: https does not answer there. Then: slotsync check';
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID')
    return 'Check API_BASE_URL: the certificate is for another name. Then: slotsync check';
  if (/CERT|SIGNATURE|ISSUER/.test(code))
    return 'The certificate is not trusted: name the file of its authority in NODE_EXTRA_CA_CERTS. Then: slotsync check';
  return undefined;
}
