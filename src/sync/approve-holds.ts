// An operator's approval: recorded for the number that is held, and for the run that does it.
import { selectStreams, type Configuration } from '../config-file.js';
import { UsageError } from '../errors.js';
import type { Mirror } from '../mirror/mirror.js';
import { requireSources } from '../mirror/require-sources.js';
import type { State } from '../state/database.js';
import { recordApprovals, type Approval } from '../state/runs/approvals.js';
import { chooseHolds, type HoldChoice } from '../state/runs/choose-holds.js';
import type { Run } from '../state/runs/read-runs.js';
import type { RunRequest } from '../state/runs/insert-run.js';
import type { Stream } from '../streams/stream.js';

interface ApproveDeps {
  configuration: Configuration;
  mirror: Mirror;
  state: State;
  /** Nothing is approved that cannot be queued: throws when the queue cannot be reached. */
  requireQueue: () => Promise<unknown>;
}

export interface Approved {
  approvals: Approval[];
  streams: readonly Stream[];
  /** The run that does what was held. */
  request: Pick<RunRequest, 'kind' | 'lane' | 'range'>;
}

/**
 * Approves what a run holds, up to the number it holds. `shown`: the number that the operator saw, if that is known; another
 * one is not approved. Throws UsageError when nothing of the choice is held, or an approval does not help.
 */
export async function approveHolds(
  { configuration, mirror, state, requireQueue }: ApproveDeps,
  { runId, shown, ...choice }: HoldChoice & { runId: number; shown?: number | undefined },
): Promise<Approved> {
  const { run, holds } = await chooseHolds(state.db, runId, choice);
  const final = holds.find(({ approvable }) => !approvable);
  if (final) throw new UsageError(`${final.stream}: ${final.reason}`);
  const held = holds.reduce((sum, { count }) => sum + count, 0);
  if (shown !== undefined && shown !== held)
    throw new UsageError(`run ${runId} holds ${held} now, not ${shown}; nothing was approved`);
  const streams = selectStreams(
    configuration,
    holds.map(({ stream }) => stream),
  );
  await requireSources(mirror, { streams });
  await requireQueue();
  const allowed = holds.map(({ count, runId: of, stream, operation }) => ({
    runId: of,
    stream,
    operation,
    allowed: count,
  }));
  const approvals = await recordApprovals(state.db, allowed, configuration.approvalHours);
  return { approvals, streams, request: sameAgain(run) };
}

/** The run that does what this one held. After single keys, the whole stream: limits are counted over all of it. */
function sameAgain({ kind, lane, range }: Run): Approved['request'] {
  if (kind === 'incremental') return { kind: 'sync', lane: 'sync' };
  return { kind, lane, range: range ?? undefined };
}
