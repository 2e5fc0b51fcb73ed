// Opens connections to the service, directly or through the organization's proxy. Notes for each request whether it was
// sent: a failure at the proxy or in the TLS handshake occurs before anything is sent.
import { DecoratorHandler, EnvHttpProxyAgent, Pool, type Dispatcher } from 'undici';
import { codeOf } from '../errors/errors.js';
import type { ApiSettings } from '../config/settings.js';

/** Timeout of each step: connecting to the service or the proxy, the tunnel, and the TLS handshake. */
const CONNECT_WITHIN_MS = 10_000;

/** Error of a proxy that cannot be reached, or that does not open a tunnel. */
export class ProxyFailure extends Error {
  override readonly name = 'ProxyFailure';
}

export type Connections = ReturnType<typeof openConnections>;

/** Opens at most 32 connections, with one request at a time on each. `onChange` gets their number, if unproxied. */
export function openConnections(
  { baseUrl, proxy }: Pick<ApiSettings, 'baseUrl' | 'proxy'>,
  requestTimeoutMs: number,
  onChange: (open: number) => void = () => undefined,
) {
  const timeout = Math.min(CONNECT_WITHIN_MS, requestTimeoutMs / 2); // shorter than a request, so that the error names the failed step
  const options = {
    connections: 32,
    pipelining: 1,
    connect: { timeout },
    headersTimeout: requestTimeoutMs,
    bodyTimeout: requestTimeoutMs,
  };
  const dispatcher =
    proxy === undefined
      ? new Pool(baseUrl, options)
      : new EnvHttpProxyAgent({
          ...options,
          httpProxy: '', // plain http stays on this machine
          httpsProxy: proxy.url,
          noProxy: proxy.except,
          proxyTls: { timeout },
          requestTls: { timeout },
          clientFactory: (origin, given) =>
            new Pool(origin, { ...given, headersTimeout: timeout }).compose(nameProxyFailures),
        });

  let open = 0;
  dispatcher.on('connect', () => onChange(++open));
  dispatcher.on('disconnect', () => onChange(--open));

  return {
    /** Sends a request. Calls `onSent` before the first byte is written to an established connection. */
    request: (request: Omit<Dispatcher.RequestOptions, 'origin'>, onSent: () => void) =>
      dispatcher.compose(noteSending(onSent)).request({ ...request, origin: baseUrl }),
    close: () => dispatcher.destroy(),
  };
}

function noteSending(onSent: () => void): Dispatcher.DispatcherComposeInterceptor {
  return (dispatch) => (options, handler) => dispatch(options, new NoteSending(handler, onSent));
}

type Upgrade = Parameters<Required<Dispatcher.DispatchHandler>['onRequestUpgrade']>;

/** DecoratorHandler with its methods, which undici's type omits. */
const Decorator = DecoratorHandler as new (handler: Dispatcher.DispatchHandler) => {
  onRequestStart(controller: Dispatcher.DispatchController, context: unknown): void;
  onRequestUpgrade(...upgrade: Upgrade): void;
  onResponseError(controller: Dispatcher.DispatchController, error: Error): void;
};

class NoteSending extends Decorator {
  readonly #onSent: () => void;

  constructor(handler: Dispatcher.DispatchHandler, onSent: () => void) {
    super(handler);
    this.#onSent = onSent;
  }

  override onRequestStart(controller: Dispatcher.DispatchController, context: unknown): void {
    super.onRequestStart(controller, context);
    // A request that was aborted while waiting for a connection is never written.
    if (!controller.aborted) this.#onSent();
  }
}

/** Turns every failure of the pool that opens tunnels through the proxy into a ProxyFailure. */
const nameProxyFailures: Dispatcher.DispatcherComposeInterceptor = (dispatch) => (options, handler) =>
  dispatch(options, new NameProxyFailures(handler));

class NameProxyFailures extends Decorator {
  override onRequestUpgrade(...upgrade: Upgrade): void {
    const [controller, statusCode, , socket] = upgrade;
    if (statusCode === 200) return super.onRequestUpgrade(...upgrade);
    socket.on('error', () => undefined).destroy();
    super.onResponseError(controller, new ProxyFailure(`it answered ${statusCode}`));
  }

  override onResponseError(controller: Dispatcher.DispatchController, error: Error): void {
    super.onResponseError(controller, new ProxyFailure(codeOf(error), { cause: error }));
  }
}
