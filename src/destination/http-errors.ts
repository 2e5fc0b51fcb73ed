// From an answer that is not 2xx, or none at all, to the error that says what happens next.
import { remedyFor } from '../errors/error-catalogue.js';
import { codeOf, SlotsyncError } from '../errors/errors.js';
import { TimeoutError } from '../time/deadline.js';
import { ProxyFailure } from './connections.js';
import { findExcess } from './read-body.js';
import { isForeignText, readFailure, type FailureReading } from './wire.js';

export interface Call {
  method: 'POST' | 'PUT';
  path: string;
  body?: unknown;
}

export interface Answer {
  status: number;
  /** The header as it came. */
  retryAfter: string | string[] | undefined;
  body: string;
}

/** The parsed body of a 2xx answer; every other answer is thrown as an error. */
export function parseAnswer(
  { status, body }: Pick<Answer, 'status' | 'body'>,
  call: Call,
  reading: FailureReading,
): unknown {
  if (status < 200 || status >= 300) throw errorOf(status, call, readFailure(body, reading));
  const excess = findExcess(body);
  if (excess) throw (excess.isLarge ? answerTooLarge : invalidAnswer)(call, `its JSON is ${excess.what}`);
  try {
    return JSON.parse(body) as unknown;
  } catch {
    // The parser's own message repeats a part of the body.
    throw isForeignText(body) ? gatewayAnswered(status, call) : invalidAnswer(call, 'its body is not JSON');
  }
}

/** `detail`: what the service says of it; undefined when the body is not the service's. */
function errorOf(status: number, call: Call, detail: string | undefined): SlotsyncError {
  const { method, path } = call;
  const context = { facts: { method, path, status }, detail };
  const message = `${method} ${path} answered ${status}`;
  if (status >= 300 && status < 400) return new SlotsyncError('redirected', message, context);
  // Too large for whoever answers: smaller requests help.
  if (status === 413)
    return new SlotsyncError('refused', message, { ...context, remedy: remedyFor('refused_413') });
  if (detail === undefined && status !== 401) return gatewayAnswered(status, call);
  if (path.endsWith('/authenticate') && (status === 401 || status === 403 || status === 404)) {
    const remedy =
      'Check API_KEY, API_ORGANIZATION_ID, API_REGION and API_BASE_URL: all four belong to one environment.';
    return new SlotsyncError('unauthorized', `the service did not accept the key (${status})`, {
      remedy,
      ...context,
    });
  }
  if (status === 401 || status === 403) {
    const remedy = 'The key is valid but lacks the right, or was withdrawn: check its rights at the service.';
    return new SlotsyncError('unauthorized', message, { remedy, ...context });
  }
  const isFailure = status >= 500 || status === 408 || status === 425;
  return new SlotsyncError(isFailure ? 'service_failed' : 'refused', message, context);
}

/** The service permits other requests with the same token: it forbids this kind of request. Other errors stay as they are. */
export function forbidden(error: unknown): unknown {
  if (!(error instanceof SlotsyncError) || error.code !== 'unauthorized') return error;
  const { message, facts, detail } = error;
  return new SlotsyncError('forbidden', message, { facts, detail });
}

/** Somebody else answered in the service's place. The body is kept out of it: it says nothing of any object. */
function gatewayAnswered(status: number, { method, path }: Call): SlotsyncError {
  const message = `${method} ${path} answered ${status}, and the body is not the service’s JSON`;
  return new SlotsyncError('gateway_answered', message, { facts: { method, path, status } });
}

/** The answer is not what wire.ts describes. The service may have carried the request out. */
export function invalidAnswer({ method, path }: Call, what: string): SlotsyncError {
  return new SlotsyncError('answer_invalid', `${method} ${path}: the answer cannot be understood: ${what}`, {
    facts: { method, path },
  });
}

/** There is more in the answer than is read. A request for less may succeed. */
export function answerTooLarge({ method, path }: Call, what: string, detail?: string): SlotsyncError {
  const message = `${method} ${path}: the answer is too large: ${what}`;
  return new SlotsyncError('answer_too_large', message, { facts: { method, path }, detail });
}

/** The error for a request that got no answer. Unless it was never sent, the service may have carried it out. */
export function asTransportError(error: unknown, { method, path }: Call, isSent: boolean): SlotsyncError {
  const isTimeout = error instanceof TimeoutError;
  const reason = isTimeout ? 'timeout' : codeOf(error);
  if (isSent) {
    const message = `${method} ${path}: no answer arrived (${reason}); the service may have carried it out`;
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
