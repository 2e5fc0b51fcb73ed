// Causes and records that are not in sync, as rows of a file for a spreadsheet and as JSON for programs: the same facts
// that are printed.
import type { Cause } from '../situation/causes.js';
import type { FailureInChain, HeldRecord } from '../situation/failures.js';
import { nameOfGate } from '../state/gates/gates.js';
import { approveCommand, commandOfCause } from '../situation/commands.js';
import { describeChain, headlineOf, nextOfCause, nextStep, reasonOf } from './failures.js';

export const CAUSE_COLUMNS =
  'stream status code records waiting waiting_by_stream since keys reasons reason next command run'.split(
    ' ',
  );

export function causeToCsv(cause: Cause) {
  const { stream, status, code, records, waiting, waitingByStream, since, keys, messages, runId } = cause;
  const byStream = Object.entries(waitingByStream).map(([name, count]) => `${name} ${count}`);
  return {
    stream,
    status,
    code,
    records,
    waiting,
    reason: reasonOf(cause),
    next: nextOfCause(cause),
    run: runId,
    waiting_by_stream: byStream.join('; '),
    since: since.toISOString(),
    keys: keys.join('; '),
    reasons: messages,
    command: commandOfCause(cause),
  };
}

export function causeToJson(cause: Cause) {
  return {
    ...cause,
    headline: headlineOf(cause),
    next: nextOfCause(cause),
    command: commandOfCause(cause),
  };
}

export const FAILURE_COLUMNS =
  'stream key external_id status code reason since attempts run waits_for cause_stream cause_key cause_status cause_code cause_reason next'.split(
    ' ',
  );

export function failureToCsv(failure: FailureInChain) {
  const { stream, localKey, externalId, status, errorCode, errorMessage, since, attempts, runId, chain } =
    failure;
  return {
    stream,
    status,
    attempts,
    key: localKey,
    external_id: externalId,
    code: errorCode,
    run: runId,
    reason: errorMessage,
    since: since.toISOString(),
    waits_for: chain && describeChain(chain),
    cause_stream: chain?.end.stream,
    cause_key: chain?.end.localKey,
    cause_status: chain?.end.status,
    cause_code: chain?.end.code,
    cause_reason: chain?.end.message,
    next: nextStep(failure),
  };
}

export function failureToJson(failure: FailureInChain) {
  return { ...failure, chain: failure.chain ?? null, next: nextStep(failure) };
}

export function heldToCsv(held: HeldRecord) {
  const { stream, localKey, gate, runId, reason, since, next } = heldToJson(held);
  return {
    stream,
    reason,
    next,
    key: localKey,
    status: 'held',
    code: gate,
    run: runId,
    since: since.toISOString(),
  };
}

/** `operation`: what would be sent. `gate`: the name of the gate that keeps the key back. */
export function heldToJson({ gate: operation, reason, sentence, ...held }: HeldRecord) {
  const gate = { ...held, operation, reason };
  const next = held.approvable ? approveCommand(gate) : sentence;
  return { ...held, gate: nameOfGate(gate), reason: sentence, next };
}
