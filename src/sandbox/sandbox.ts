// A stand-in for the scheduling service, over HTTP, on which an organization rehearses before it uses the real one. It
// shares no code with the client, so that a mistake of the client cannot be repeated and hidden in it. Beside the
// service's endpoints it has control endpoints below /sandbox/, see control.ts.
import { setMaxListeners } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createArrivals } from './arrivals.js';
import { createControl } from './control.js';
import { createExchange } from './exchange.js';
import type { Conditions } from './exchange.js';
import { createFaults } from './faults.js';
import { createFindReservations } from './find-reservations.js';
import { createGate } from './gate.js';
import type { Sandbox, SandboxControls, SandboxOptions } from './handle.js';
import { answerTo, send } from './http.js';
import { createObjects } from './object-store.js';
import { createPutObjects } from './put-objects.js';
import type { ObjectRefusal } from './put-objects.js';
import { createWindow } from './quota-window.js';
import { createRandom } from './random.js';
import { createReservations } from './reservation-store.js';
import { createRouter } from './router.js';
import type { Endpoint } from './router.js';
import { createSchema } from './schema.js';
import { createTokens } from './tokens.js';

export type { Sandbox, SandboxOptions } from './handle.js';

/** Starts the sandbox and resolves when it listens; throws when the port is taken. */
export async function startSandbox(options: SandboxOptions = {}): Promise<Sandbox> {
  const random = createRandom(options.seed ?? 1);
  const organizationId = options.organizationId ?? 'demo';
  const maxPage = options.maxPage ?? 1000;
  const quota = { rate: options.rate ?? 20, window: options.window ?? 'sliding' };
  const makeWindow = () => createWindow(quota.window, quota.rate, performance.timeOrigin);
  const conditions: Conditions = {
    window: makeWindow(),
    retryAfter: options.retryAfter ?? true,
    latencyMs: options.latencyMs ?? 0,
    jitterMs: options.jitterMs ?? 0,
  };

  const schema = createSchema();
  if (options.schema !== undefined) schema.define(options.schema);
  const objects = createObjects(schema);
  const reservations = createReservations();
  const refusals = new Map<string, ObjectRefusal>();
  const arrivals = createArrivals();
  const faults = createFaults(random, options.faults);
  const gate = createGate(options.gate);
  const tokens = createTokens({
    organizationId,
    tokenSeconds: options.tokenSeconds ?? 300,
    tokenExp: options.tokenExp ?? true,
  });

  const putObjects = createPutObjects(
    { schema, objects, refusals },
    {
      putStatus: options.putStatus,
      maxObjects: options.maxObjects ?? 1000,
      references: options.references ?? 'call',
    },
  );
  const { findReservations, findCancellations } = createFindReservations(
    { schema, objects, reservations },
    { honoursModified: options.honoursModified ?? true },
  );
  const finding = (find: (body: unknown) => unknown): Endpoint => {
    return (body) => ({ status: 200, body: find(body) });
  };
  const route = createRouter(
    {
      tokens,
      endpoints: new Map<string, Endpoint>([
        ['PUT /v1/objects', putObjects],
        ['POST /v1/objects/find', finding((body) => objects.find(body, maxPage))],
        ['POST /v1/types/find', finding((body) => schema.findTypes(body, maxPage))],
        ['POST /v1/fields/find', finding((body) => schema.findFields(body, maxPage))],
        ['POST /v1/reservations/find', finding((body) => findReservations(body, maxPage))],
        ['POST /v1/cancellations/find', finding((body) => findCancellations(body, maxPage))],
      ]),
    },
    {
      organizationId,
      apiKey: options.apiKey ?? 'sandbox-key',
      region: options.region ?? 'EU_EES',
      expiredStatus: options.expiredStatus ?? 401,
    },
  );

  const closing = new AbortController();
  setMaxListeners(0, closing.signal); // one for each request under way
  const exchange = createExchange({
    conditions,
    arrivals,
    faults,
    gate,
    route,
    random,
    signal: closing.signal,
  });

  const handle: SandboxControls = {
    defineSchema: (next) => schema.define(next),
    objects: objects.list,
    object: objects.get,
    putObject: (object) => objects.put(object),
    reservations: () => structuredClone(reservations.reservations()),
    cancellations: () => structuredClone(reservations.cancellations()),
    addReservation: (reservation) => reservations.add(reservation),
    moveReservation: (key, to) => reservations.move(key, to),
    setReservationStatus: (key, status) => reservations.setStatus(key, status),
    cancelReservation: (key, cancellation) => reservations.cancel(key, cancellation),
    restoreReservation: (key) => reservations.restore(key),
    removeReservation: (key) => reservations.remove(key),
    arrivals: arrivals.list,
    clearArrivals: () => arrivals.clear(),
    mostInAnySecond: arrivals.mostInAnySecond,
    refused: arrivals.refused,
    setFaults: (next) => faults.set(next),
    setLatency(latencyMs, jitterMs = 0) {
      conditions.latencyMs = latencyMs;
      conditions.jitterMs = jitterMs;
    },
    setQuota(next) {
      quota.rate = next.rate ?? quota.rate;
      quota.window = next.window ?? quota.window;
      conditions.retryAfter = next.retryAfter ?? conditions.retryAfter;
      conditions.window = makeWindow();
    },
    failNext: (rule) => faults.failNext(rule),
    clearFailures: () => faults.clearFailures(),
    closeGate: (rule = {}) => gate.close(rule),
    openGate: () => gate.open(),
    gate: () => gate.status(),
    refuseObject: (extId, refusal) => void refusals.set(extId, refusal),
    allowObject: (extId) => void refusals.delete(extId),
    revokeTokens: () => tokens.revoke(),
  };
  const control = createControl(handle, () => arrivals.total());

  const handleRequest = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const [path = '/', query] = (request.url ?? '/').split('?', 2);
    try {
      if (!path.startsWith('/sandbox/')) await exchange(request, response, path);
      else send(response, await control(request, path, new URLSearchParams(query)));
    } catch (error) {
      // No answer is possible to a client that is gone, or when the sandbox is closing.
      if (!response.destroyed) send(response, answerTo(error));
    }
  };
  const server = createServer({ keepAliveTimeout: 60_000, noDelay: true }, (request, response) => {
    void handleRequest(request, response);
  });
  const host = options.host ?? '127.0.0.1';
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(options.port ?? 0, host, () => {
      server.off('error', reject);
      resolve();
    });
  });
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;

  return {
    ...handle,
    url: `http://${host.includes(':') ? `[${host}]` : host}:${port}`,
    close: () =>
      new Promise<void>((resolve) => {
        closing.abort();
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
