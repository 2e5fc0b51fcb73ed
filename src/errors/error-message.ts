// The error that ends a command: what failed, every fault, and what to do about it.
import { lines } from '../text/format.js';
import { codeOf, messageOf, messageWithDetail, SlotsyncError, UsageError } from './errors.js';

/** As lines. */
export function describeError(error: unknown): string[] {
  const remedy = remedyOf(error);
  return lines(
    `slotsync: ${messageWithDetail(error)}`,
    error instanceof UsageError && error.faults.map((fault) => `  - ${fault}`),
    remedy && `  → ${remedy}`,
  );
}

export function errorToJson(error: unknown) {
  const faults = error instanceof UsageError ? { faults: error.faults } : {};
  return { error: { code: codeOf(error), message: messageOf(error), ...faults, remedy: remedyOf(error) } };
}

/** Undefined when the message already says what to do. */
function remedyOf(error: unknown): string | undefined {
  return (error instanceof SlotsyncError && error.remedy) || undefined;
}
