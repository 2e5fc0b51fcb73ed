// The rehearsal's controls, below /sandbox/. They are *not part of the service*: the real one has nothing like them,
// and no client code may use them. No authentication, not counted by the quota, no latency and no faults; answered
// to callers on the same host only.
//
//   GET    /sandbox/summary                      objects by type, requests, refused, most in any second
//   GET    /sandbox/arrivals                     every request that reached the service
//   DELETE /sandbox/arrivals
//   GET    /sandbox/objects[?typeId=…]           what is stored
//   PUT    /sandbox/objects                      { extId, typeId, active?, fields? }: as a person makes one there
//   PUT    /sandbox/schema                       { types, fields }
//   PUT    /sandbox/faults                       { status500?, reset?, loseAnswer?, brokenJson?, hang? }: 0 to 1
//   POST   /sandbox/fail-next                    { fault, path?, status?, body?, headers?, times? }
//   DELETE /sandbox/fail-next                    forgets what was ordered and not yet done
//   POST   /sandbox/gate                         { path?, method?, hold?, after? }: holds requests, see gate.ts
//   GET    /sandbox/gate                         { closed, held }: how many are held
//   DELETE /sandbox/gate                         lets them go
//   PUT    /sandbox/latency                      { latencyMs, jitterMs? }
//   PUT    /sandbox/quota                        { rate?, window?, retryAfter? }
//   PUT    /sandbox/refusals/{extId}             { status, message, wholeCall? }: an object the service will not take
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
import { z } from 'zod';
import type { SandboxControls } from './handle.js';
import { decodeSegment, parseJson, readBody } from './http.js';
import type { SandboxAnswer } from './http.js';
import { parseBody } from './paging.js';
import { Refusal } from './refusal.js';
import { SANDBOX_STATUSES } from './reservation-store.js';
import { schemaDefinition } from './schema.js';

const chance = z.number().min(0).max(1).optional();
const faults = z.strictObject({
  status500: chance,
  reset: chance,
  loseAnswer: chance,
  brokenJson: chance,
  hang: chance,
});
const failRule = z.strictObject({
  path: z.string().optional(),
  fault: z.enum(['status', 'reset', 'loseAnswer', 'brokenJson', 'hang']),
  status: z.int().min(200).max(599).optional(),
  body: z.unknown().optional(),
  headers: z.record(z.string(), z.string()).optional(),
  times: z.int().min(1).optional(),
});
const gateRule = z.strictObject({
  path: z.string().optional(),
  method: z.string().toUpperCase().optional(),
  hold: z.enum(['request', 'answer']).optional(),
  after: z.int().min(0).optional(),
});
const latency = z.strictObject({ latencyMs: z.number().min(0), jitterMs: z.number().min(0).optional() });
const quota = z.strictObject({
  rate: z.number().min(0).optional(),
  window: z.enum(['sliding', 'fixed', 'bucket']).optional(),
  retryAfter: z.boolean().optional(),
});
const refusal = z.strictObject({
  status: z.int().min(400).max(599),
  message: z.string(),
  wholeCall: z.boolean().optional(),
});
const fields = z.array(z.strictObject({ fieldId: z.string(), values: z.array(z.string()) })).optional();
const object = z.strictObject({
  extId: z.string().min(1),
  typeId: z.string().min(1),
  active: z.boolean().optional(),
  fields,
});
const status = z.array(z.enum(SANDBOX_STATUSES));
const times = z.strictObject({ begin: z.int(), end: z.int() });
const reservation = times.extend({
  extId: z.string().min(1).optional(),
  status: status.optional(),
  objects: z.array(z.strictObject({ typeId: z.string(), objectId: z.string() })).optional(),
  fields,
  modified: z.int().optional(),
});

type Action = (body: () => unknown, name: string, query: URLSearchParams) => unknown;

/** Answers control requests by way of the handle. Throws a `Refusal` for what it does not know. */
export function createControl(sandbox: SandboxControls, requests: () => number) {
  const key = (name: string) => (/^\d+$/.test(name) ? Number(name) : name);

  const actions = new Map<string, Action>([
    ['GET summary', () => summaryOf(sandbox, requests())],
    ['GET arrivals', () => sandbox.arrivals()],
    ['DELETE arrivals', () => sandbox.clearArrivals()],
    ['GET objects', (_body, _name, query) => objectsOf(sandbox, query.get('typeId'))],
    ['PUT objects', (body) => sandbox.putObject(parseBody(object, body()))],
    ['PUT schema', (body) => sandbox.defineSchema(parseBody(schemaDefinition, body()))],
    ['PUT faults', (body) => sandbox.setFaults(parseBody(faults, body()))],
    ['POST fail-next', (body) => sandbox.failNext(parseBody(failRule, body()))],
    ['DELETE fail-next', () => sandbox.clearFailures()],
    ['POST gate', (body) => sandbox.closeGate(parseBody(gateRule, body() ?? {}))],
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
    ['PUT refusals/*', (body, name) => sandbox.refuseObject(name, parseBody(refusal, body()))],
    ['DELETE refusals/*', (_body, name) => sandbox.allowObject(name)],
    ['DELETE tokens', () => sandbox.revokeTokens()],
    [
      'GET reservations',
      () => ({ reservations: sandbox.reservations(), cancellations: sandbox.cancellations() }),
    ],
    ['POST reservations', (body) => sandbox.addReservation(parseBody(reservation, body()))],
    [
      'POST reservations/*/move',
      (body, name) => sandbox.moveReservation(key(name), parseBody(times, body())),
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
        sandbox.setReservationStatus(key(name), parseBody(z.strictObject({ status }), body()).status),
    ],
    ['DELETE reservations/*', (_body, name) => sandbox.removeReservation(key(name))],
  ]);

  return async (request: IncomingMessage, path: string, query: URLSearchParams): Promise<SandboxAnswer> => {
    refuseStrangers(request.socket.remoteAddress);
    const [, , noun = '', name = '', verb] = path.split('/');
    const route = [noun, ...(name === '' ? [] : ['*']), ...(verb === undefined ? [] : [verb])].join('/');
    const action = actions.get(`${request.method} ${route}`);
    if (action === undefined) throw new Refusal(404, `no such control: ${request.method} ${path}`);
    const text = await readBody(request);
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

function refuseStrangers(address: string | undefined): void {
  if (address === '::1' || address?.replace('::ffff:', '').startsWith('127.') === true) return;
  throw new Refusal(403, 'controls answer on the same host only');
}
