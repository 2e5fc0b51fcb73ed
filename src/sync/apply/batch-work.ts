// A batch at work: the value that each of its steps receives.
import type { Context } from '../../destination/client.js';
import type { Batch } from '../../state/runs/batches.js';
import type { Stream } from '../../streams/stream.js';
import type { Answers, Refusals } from '../limits/refusals.js';
import type { Settle } from '../object/outcome-reasons.js';
import type { BatchClaim } from './batch-claim.js';

export interface BatchWork {
  batch: Batch;
  stream: Stream;
  claim: BatchClaim;
  /** Lane and signal of its requests. */
  context: Context;
  settle: Settle;
  refusals: Refusals;
  /** Answers about its objects that were not counted yet. */
  answers: Answers;
}
