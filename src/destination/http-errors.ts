// Converts a failed answer, or a missing answer, to an error whose code determines what happens next.
import { remedyFor } from '../errors/error-catalogue.js';
import { NotUnderstood, type Kind, type Method } from '../dialect/dialect.js';
import { codeOf, messageOf, SlotsyncError } from '../errors/errors.js';
import { TimeoutError } from '../time/deadline.js';
import { ProxyFailure } from './connections.js';
import { describeShape, shapeOf } from '../text/json-shape.js';
import { isForeignText, readFailure, type FailureReading } from './failure-text.js';
import { findExcess } from './read-body.js';

export type Endpoint = 'authenticate' | 'objects' | `find${Capitalize<Kind>}`;

export interface Call {
  method: Method;
  /** Path without the query. */
  path: string;
  /** Query with its leading `?`, or empty. It may contain record values or the key, so messages and logs omit it. */
  query: string;
  endpoint: Endpoint;
  body?: unknown;
}

export type Named = Pick<Call, 'method' | 'path'>;

export interface Answer {
  status: number;
  /** The Retry-After header, unparsed. */
  retryAfter: string | string[] | undefined;
  body: string;
}

/** Kind of an error's body: the service's JSON, a gateway's `page` of markup, or `other` text or no body. */
type Body = 'service' | 'page' | 'other';

/** Meaning of an answer: `read` its body, send again when `throttled` (exchange.ts), or throw this error code. */
export type Meaning =
  'read' | 'throttled' | 'redirected' | 'unauthorized' | 'gateway_answered' | 'refused' | 'service_failed';

/** Statuses of a request whose body, address or headers are too large. A smaller request may succeed. */
const TOO_LARGE = [413, 414, 431];

/** Statuses of a PUT that is refused because of its content. Such a PUT is sent again in parts. */
const REFUSED_CONTENT = [400, 404, 409, 410, 412, 422, 423, ...TOO_LARGE];

/** Returns the meaning of an answer. */
export function meaningOf(status: number, { endpoint }: Pick<Call, 'endpoint'>, body: Body): Meaning {
  const isRefusal = status >= 400 && status < 500;
  if (status >= 200 && status < 300) return 'read';
  if (status >= 300 && status < 400) return 'redirected';
  if (status === 429) return 'throttled';
  if (status === 401) return 'unauthorized';
  if (isRefusal && endpoint === 'authenticate' && body !== 'page') return 'unauthorized';
  if (TOO_LARGE.includes(status)) return 'refused';
  if (status < 200 || body !== 'service') return 'gateway_answered';
  if (status === 403) return 'unauthorized';
  return isRefusal && status !== 408 && status !== 425 ? 'refused' : 'service_failed';
}

/** Returns the status of a request that was refused because of its content, or undefined for other errors. */
export function refusedContent(error: unknown): number | undefined {
  if (!(error instanceof SlotsyncError) || error.code !== 'refused') return undefined;
  return REFUSED_CONTENT.find((status) => status === error.facts['status']);
}

export const isRequestTooLarge = (error: unknown): boolean => TOO_LARGE.includes(refusedContent(error) ?? 0);

/** Error codes of a request that a single object in the request may have caused. */
const SPOILED = new Set([
  'answer_invalid',
  'answer_lost',
  'answer_too_large',
  'gateway_answered',
  'service_failed',
]);

/** Returns true if a single object in a request may have caused its failure. */
export const isSpoiled = (error: unknown): boolean => SPOILED.has(codeOf(error));

/** Parses the body of a 2xx answer. Throws an error for every other answer. */
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
    // The parser's own error is not used, because its message repeats a part of the body.
    throw isForeignText(body) ? gatewayAnswered(status, call) : invalidAnswer(call, 'its body is not JSON');
  }
}

/** Returns the error for a failed answer. `detail` is the service's text; undefined if a gateway wrote the body. */
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
      ? 'The key lacks the right, or was withdrawn. Check its rights at the service.'
      : status === 413
        ? remedyFor('refused_413')
        : undefined;
  return new SlotsyncError(code === 'read' ? 'answer_invalid' : code, message, {
    facts: { method, path, status },
    remedy,
    detail,
  });
}

/** Converts `unauthorized` to `forbidden`: the service accepts the token, but forbids this kind of request. */
export function forbidden(error: unknown): unknown {
  if (!(error instanceof SlotsyncError) || error.code !== 'unauthorized') return error;
  const { message, facts, detail } = error;
  return new SlotsyncError('forbidden', message, { facts, detail });
}

/** Returns the error for an answer of a gateway. Omits the body, which says nothing about any object. */
function gatewayAnswered(status: number, { method, path }: Named): SlotsyncError {
  const message = `${method} ${path} answered ${status}, and the body is not the service’s JSON`;
  return new SlotsyncError('gateway_answered', message, { facts: { method, path, status } });
}

/** Returns the error for an answer that the dialect cannot read. The service may have carried out the write. */
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

const MOST_SHAPE = 200;

/** Reads an answer by the dialect. Throws `answer_invalid`, with the keys and types of the answer but no values. */
export function understand<T>(call: Named, body: unknown, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof NotUnderstood)) throw error;
    const shape = describeShape(shapeOf(body));
    const came = shape.length > MOST_SHAPE ? `${shape.slice(0, MOST_SHAPE)}…` : shape;
    throw invalidAnswer(
      call,
      `${error.message}; the answer has the form ${came}`,
      error.more.detail,
      error.more.remedy,
    );
  }
}

/** Returns the error for an answer that exceeds a limit. A request for fewer results may succeed. */
export function answerTooLarge({ method, path }: Named, what: string, detail?: string): SlotsyncError {
  const message = `${method} ${path}: the answer is too large: ${what}`;
  return new SlotsyncError('answer_too_large', message, { facts: { method, path }, detail });
}

/** Returns the error for an answer that names another object. `what` says which. */
export function answeredOtherwise(what: string): SlotsyncError {
  return new SlotsyncError('answer_contradicts', 'the answer names an object that was not requested', {
    detail: what,
  });
}

export function failsOnFound(error: unknown, id: string): SlotsyncError {
  const { facts = {}, detail = '' } = error instanceof SlotsyncError ? error : {};
  const message = `${messageOf(error)}; the service failed each time this object was requested, but answered for others`;
  return new SlotsyncError('service_fails_on_object', message, {
    facts,
    detail: [`'${id}'`, detail].filter(Boolean).join(': '),
    cause: error,
  });
}

/** Returns the error for a request without an answer. If the request was sent, the service may have carried it out. */
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

/** Returns the remedy for a failed TLS handshake, or undefined for other failures. */
function remedyOfHandshake(code: string): string | undefined {
  if (code === 'EPROTO' || code.startsWith('ERR_SSL_'))
    return 'Check the port in API_BASE_URL: https does not answer there. Then: slotsync check';
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID')
    return 'Check API_BASE_URL: the certificate is for another name. Then: slotsync check';
  if (/CERT|SIGNATURE|ISSUER/.test(code))
    return 'The certificate is not trusted: name the file of its authority in NODE_EXTRA_CA_CERTS. Then: slotsync check';
  return undefined;
}
