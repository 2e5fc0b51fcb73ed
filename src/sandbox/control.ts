// The rehearsal's controls, below /sandbox/. They are *not part of the service*, and no client code may use them. They need
// no authentication, are not counted by the quota, have no latency and no faults, and answer callers on the same host
// only.
//
//   GET    /sandbox/summary                      objects by type, requests, refused, most in any second
//   GET    /sandbox/arrivals                     every request that reached the service
//   DELETE /sandbox/arrivals
//   GET    /sandbox/objects[?typeId=…]           what is stored
//   PUT    /sandbox/objects                      { extId, typeId, active?, fields? }: as a scheduler enters one
//   PUT    /sandbox/schema                       { types, fields }
//   PUT    /sandbox/faults                       { status500?, reset?, loseAnswer?, brokenJson?, hang? }: 0 to 1
//   POST   /sandbox/fail-next                    { fault, path?, status?, body?, headers?, times? }
//   DELETE /sandbox/fail-next                    forgets what was ordered and has not happened yet
//   POST   /sandbox/gate                         { path?, method?, hold?, after? }: holds requests, see gate.ts
//   GET    /sandbox/gate                         { closed, held }: how many are held
//   DELETE /sandbox/gate                         lets them go
//   PUT    /sandbox/latency                      { latencyMs, jitterMs? }
//   PUT    /sandbox/quota                        { rate?, window?, retryAfter? }
//   PUT    /sandbox/refusals/{extId}             { status, message, wholeCall? }: the service refuses this object
//   DELETE /sandbox/refusals/{extId}
//   DELETE /sandbox/tokens                       revokes all
//   GET    /sandbox/reservations                 { reservations, cancellations }
//   POST   /sandbox/reservations                 { extId?, begin, end, status?, objects?, fields? }: seconds
//   POST   /sandbox/reservations/{id}/move       { begin, end }
//   POST   /sandbox/reservations/{id}/cancel     no body, or { extId } of the cancellation
//   POST   /sandbox/reservations/{id}/restore    no body
//   POST   /sandbox/reservations/{id}/status     { status: […] }
//   DELETE /sandbox/reservations/{id}            without a trace
//
// {id} is the integer id or the external one.
import type { IncomingMessage } from 'node:http';
import { text as readText } from 'node:stream/consumers';
import { z } from 'zod';
import { failRuleSchema, faultsSchema } from './faults.js';
import { gateRuleSchema } from './gate.js';
import type { SandboxControls } from './handle.js';
import { decodeSegment, parseJson } from './http.js';
import type { SandboxAnswer } from './http.js';
import { objectInput } from './object-store.js';
import { parseBody } from './paging.js';
import { refusalSchema } from './put-objects.js';
import { Refusal } from './refusal.js';
import { periodSchema, reservationInput, statusSchema } from './reservation-store.js';
import { schemaDefinition } from './schema.js';

const latency = z.strictObject({ latencyMs: z.number().min(0), jitterMs: z.number().min(0).optional() });
const quota = z.strictObject({
  rate: z.number().min(0).optional(),
  window: z.enum(['sliding', 'fixed', 'bucket']).optional(),
  retryAfter: z.boolean().optional(),
});

type Action = (body: () => unknown, name: string, query: URLSearchParams) => unknown;

/** Answers control requests through the handle. Throws a `Refusal` for unknown ones. */
export function createControl(sandbox: SandboxControls, requests: () => number) {
  const key = (name: string) => (/^\d+$/.test(name) ? Number(name) : name);

  const actions = new Map<string, Action>([
    ['GET summary', () => summaryOf(sandbox, requests())],
    ['GET arrivals', () => sandbox.arrivals()],
    ['DELETE arrivals', () => sandbox.clearArrivals()],
    ['GET objects', (_body, _name, query) => objectsOf(sandbox, query.get('typeId'))],
    ['PUT objects', (body) => sandbox.putObject(parseBody(objectInput, body()))],
    ['PUT schema', (body) => sandbox.defineSchema(parseBody(schemaDefinition, body()))],
    ['PUT faults', (body) => sandbox.setFaults(parseBody(faultsSchema, body()))],
    ['POST fail-next', (body) => sandbox.failNext(parseBody(failRuleSchema, body()))],
    ['DELETE fail-next', () => sandbox.clearFailures()],
    ['POST gate', (body) => sandbox.closeGate(parseBody(gateRuleSchema, body() ?? {}))],
    ['GET gate', () => sandbox.gate()],
    ['DELETE gate', () => sandbox.openGate()],
    [
      'PUT latency',
      (body) => {
        const next = parseBody(latency, body());
        sandbox.setLatency(next.latencyMs, next.jitterMs);
      },
    ],
    ['PUT quota', (body) => sandbox.setQuota(parseBody(quota, body()))],
    ['PUT refusals/*', (body, name) => sandbox.refuseObject(name, parseBody(refusalSchema, body()))],
    ['DELETE refusals/*', (_body, name) => sandbox.allowObject(name)],
    ['DELETE tokens', () => sandbox.revokeTokens()],
    [
      'GET reservations',
      () => ({ reservations: sandbox.reservations(), cancellations: sandbox.cancellations() }),
    ],
    ['POST reservations', (body) => sandbox.addReservation(parseBody(reservationInput, body()))],
    [
      'POST reservations/*/move',
      (body, name) => sandbox.moveReservation(key(name), parseBody(periodSchema, body())),
    ],
    [
      'POST reservations/*/cancel',
      (body, name) =>
        sandbox.cancelReservation(
          key(name),
          parseBody(z.strictObject({ extId: z.string().optional() }), body() ?? {}),
        ),
    ],
    ['POST reservations/*/restore', (_body, name) => sandbox.restoreReservation(key(name))],
    [
      'POST reservations/*/status',
      (body, name) =>
        sandbox.setReservationStatus(
          key(name),
          parseBody(z.strictObject({ status: statusSchema }), body()).status,
        ),
    ],
    ['DELETE reservations/*', (_body, name) => sandbox.removeReservation(key(name))],
  ]);

  return async (request: IncomingMessage, path: string, query: URLSearchParams): Promise<SandboxAnswer> => {
    requireSameHost(request.socket.remoteAddress);
    const [, , noun = '', name = '', verb] = path.split('/');
    const route = [noun, ...(name === '' ? [] : ['*']), ...(verb === undefined ? [] : [verb])].join('/');
    const action = actions.get(`${request.method} ${route}`);
    if (action === undefined) throw new Refusal(404, `no such control: ${request.method} ${path}`);
    const text = await readText(request);
    const body = () => (text === '' ? undefined : parseJson(text));
    const result = action(body, decodeSegment(name), query);
    return result === undefined ? { status: 204 } : { status: 200, body: result };
  };
}

function summaryOf(sandbox: SandboxControls, requests: number) {
  const objects: Record<string, { active: number; inactive: number }> = {};
  for (const { typeId, active } of sandbox.objects()) {
    const counts = (objects[typeId] ??= { active: 0, inactive: 0 });
    counts[active ? 'active' : 'inactive'] += 1;
  }
  return {
    objects,
    reservations: sandbox.reservations().length,
    cancellations: sandbox.cancellations().length,
    requests,
    refused: sandbox.refused(),
    mostInAnySecond: sandbox.mostInAnySecond(),
  };
}

function objectsOf(sandbox: SandboxControls, typeId: string | null) {
  return sandbox.objects().filter((one) => typeId === null || one.typeId === typeId);
}

function requireSameHost(address: string | undefined): void {
  if (address === '::1' || address?.replace('::ffff:', '').startsWith('127.') === true) return;
  throw new Refusal(403, 'controls answer on the same host only');
}
