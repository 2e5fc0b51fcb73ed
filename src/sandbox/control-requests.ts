// Control requests of a rehearsal, below /sandbox/. They are *not part of the service*, and no client code may use
// them. They need no authentication, and have no quota, latency or faults. In a path, {} is an external id, or the
// integer id of an object or reservation. Times are Unix seconds.
import { z } from 'zod';
import { failRuleSchema, faultsSchema } from './faults.js';
import { gateRuleSchema, latencySchema } from './request-steps.js';
import { endpoint, type Endpoint } from './http.js';
import type { Key } from './stores.js';
import { addedObject, objectChange, objectInput } from './object-store.js';
import { refusalSchema } from './put-objects.js';
import { quotaSchema } from './quota.js';
import { periodSchema, reservationInput, statusSchema } from './reservations.js';
import { schemaDefinition } from './schema.js';
import type { SandboxControls } from './service.js';

const none = undefined;
const cancelBody = z.strictObject({ extId: z.string().optional() }).default({});
const apiKeyBody = z.strictObject({ key: z.string().min(1) });
const pagesBody = z.strictObject({ missing: z.int().min(0) });
const statusBody = z.strictObject({ status: statusSchema });

/** Returns the table of control requests. Each request calls one of the sandbox's controls. */
export function controlRequests(sandbox: SandboxControls): Endpoint[] {
  return [
    endpoint('GET', '/sandbox/summary', none, () => summaryOf(sandbox)),
    endpoint('GET', '/sandbox/arrivals', none, sandbox.arrivals),
    endpoint('DELETE', '/sandbox/arrivals', none, sandbox.clearArrivals),
    endpoint('GET', '/sandbox/objects', none, (_, _name, { query }) =>
      [...sandbox.objects(), ...sandbox.unnamedObjects()].filter(
        ({ typeId }) => typeId === (query.get('typeId') ?? typeId),
      ),
    ),
    endpoint('PUT', '/sandbox/objects', objectInput, sandbox.putObject),
    endpoint('POST', '/sandbox/objects', addedObject, sandbox.addObject),
    endpoint('PATCH', '/sandbox/objects/{}', objectChange, (body, name) =>
      sandbox.changeObject(keyOf(name), body),
    ),
    endpoint('DELETE', '/sandbox/objects/{}', none, (_, name) => sandbox.removeObject(keyOf(name))),
    endpoint('PUT', '/sandbox/pages', pagesBody, ({ missing }) => sandbox.setMissingPages(missing)),
    endpoint('PUT', '/sandbox/schema', schemaDefinition, sandbox.defineSchema),
    endpoint('PUT', '/sandbox/faults', faultsSchema, sandbox.setFaults),
    endpoint('POST', '/sandbox/fail-next', failRuleSchema, sandbox.failNext),
    endpoint('DELETE', '/sandbox/fail-next', none, sandbox.clearFailures),
    endpoint('GET', '/sandbox/late', none, () => ({ waiting: sandbox.late() })),
    endpoint('POST', '/sandbox/late/release', none, sandbox.releaseLate),
    endpoint('POST', '/sandbox/late/reset', none, sandbox.resetLate),
    endpoint('POST', '/sandbox/gate', gateRuleSchema.default({}), sandbox.closeGate),
    endpoint('GET', '/sandbox/gate', none, sandbox.gate),
    endpoint('DELETE', '/sandbox/gate', none, sandbox.openGate),
    endpoint('PUT', '/sandbox/latency', latencySchema, (body) =>
      sandbox.setLatency(body.latencyMs, body.jitterMs, body.latencyPerObjectMs),
    ),
    endpoint('PUT', '/sandbox/quota', quotaSchema, sandbox.setQuota),
    endpoint('PUT', '/sandbox/refusals/{}', refusalSchema, (body, extId) =>
      sandbox.refuseObject(extId, body),
    ),
    endpoint('DELETE', '/sandbox/refusals/{}', none, (_, extId) => sandbox.allowObject(extId)),
    endpoint('PUT', '/sandbox/api-key', apiKeyBody, ({ key }) => sandbox.setApiKey(key)),
    endpoint('DELETE', '/sandbox/tokens', none, sandbox.revokeTokens),
    endpoint('GET', '/sandbox/reservations', none, () => ({
      reservations: sandbox.reservations(),
      cancellations: sandbox.cancellations(),
    })),
    endpoint('POST', '/sandbox/reservations', reservationInput, sandbox.addReservation),
    reservation('POST', '/move', periodSchema, sandbox.moveReservation),
    reservation('POST', '/cancel', cancelBody, sandbox.cancelReservation),
    reservation('POST', '/restore', none, sandbox.restoreReservation),
    reservation('POST', '/status', statusBody, (key, { status }) =>
      sandbox.setReservationStatus(key, status),
    ),
    reservation('DELETE', '', none, sandbox.removeReservation),
  ];
}

/** Returns a control request for one reservation, which is named by its integer id or its external id. */
function reservation<T>(
  method: string,
  verb: string,
  body: z.ZodType<T> | undefined,
  work: (key: Key, body: T) => unknown,
): Endpoint {
  return endpoint(method, `/sandbox/reservations/{}${verb}`, body, (parsed, name) =>
    work(keyOf(name), parsed),
  );
}

/** Parses a name in a path: digits are an integer id, any other text is an external id. */
function keyOf(name: string): Key {
  return /^\d+$/.test(name) ? Number(name) : name;
}

function summaryOf(sandbox: SandboxControls) {
  const objects: Record<string, { active: number; inactive: number }> = {};
  for (const { typeId, active } of [...sandbox.objects(), ...sandbox.unnamedObjects()]) {
    const counts = (objects[typeId] ??= { active: 0, inactive: 0 });
    counts[active ? 'active' : 'inactive'] += 1;
  }
  return {
    objects,
    reservations: sandbox.reservations().length,
    cancellations: sandbox.cancellations().length,
    requests: sandbox.requests(),
    refused: sandbox.refused(),
    mostInAnySecond: sandbox.mostInAnySecond(),
    answers: sandbox.answers(),
  };
}
