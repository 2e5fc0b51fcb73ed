// Exit codes of the process: 0 done, 1 something failed, 2 wrong use or configuration, 3 held for approval. A run whose
// held records are all frozen or rejected by an operator needs nobody, so its exit code is 0.
import { errorEntry } from '../errors/error-catalogue.js';
import type { Run } from '../state/runs/read-runs.js';

export const EXIT = { done: 0, failed: 1, usage: 2, held: 3 } as const;

export function exitCodeOfErrorCode(code: string | null): number {
  return errorEntry(code).exitCode ?? EXIT.failed;
}

export function exitCodeOfRun({
  status,
  errorCode,
  holds,
}: Pick<Run, 'status' | 'errorCode' | 'holds'>): number {
  if (status === 'succeeded') return EXIT.done;
  if (status === 'held') {
    const held = Object.values(holds).flatMap((ofStream) => Object.values(ofStream));
    return held.every(({ reason, isRejected }) => reason === 'frozen' || isRejected) ? EXIT.done : EXIT.held;
  }
  return status === 'failed' ? exitCodeOfErrorCode(errorCode) : EXIT.failed;
}
