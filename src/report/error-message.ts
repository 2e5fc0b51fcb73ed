// The error that ends a command: what failed, every fault, and what to do about it.
import { codeOf, messageOf, messageWithDetail, SlotsyncError, UsageError } from '../errors.js';

export function describeError(error: unknown): string {
  const faults = error instanceof UsageError ? error.faults.map((fault) => `  - ${fault}`) : [];
  const remedy = remedyOf(error);
  return [
    `slotsync: ${messageWithDetail(error)}`,
    ...faults,
    ...(remedy === undefined ? [] : [`  → ${remedy}`]),
  ].join('\n');
}

export function errorToJson(error: unknown) {
  const faults = error instanceof UsageError ? { faults: error.faults } : {};
  return { error: { code: codeOf(error), message: messageOf(error), ...faults, remedy: remedyOf(error) } };
}

/** Undefined when the message already says what to do. */
export function remedyOf(error: unknown): string | undefined {
  return error instanceof SlotsyncError && error.remedy !== '' ? error.remedy : undefined;
}
