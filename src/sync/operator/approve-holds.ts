// An operator's approval: recorded for the number that is held, and for the run that does it.
import { selectStreams, type Configuration } from '../../config/config-file.js';
import { UsageError } from '../../errors/errors.js';
import type { Mirror } from '../../mirror/mirror.js';
import { requireSources } from '../../mirror/require-sources.js';
import type { State } from '../../state/database.js';
import { listFrozen } from '../../state/freezes.js';
import type { Waiting } from '../../state/locks.js';
import { chooseHolds, type HoldChoice } from '../../state/runs/choose-holds.js';
import type { Actor } from '../../state/actions.js';
import { approveHeld } from '../../state/runs/decide-holds.js';
import { digestHeldKeys } from '../../state/runs/held-keys.js';
import { sameAgain } from '../../state/runs/insert-run.js';
import type { Run } from '../../state/runs/read-runs.js';
import { formatMinute, formatNumber } from '../../text/format.js';
import { describeReason } from '../limits/hold-reason.js';

type ApproveChoice = HoldChoice & { runId: number; shown?: number | undefined; exactly?: boolean };

interface ApproveDeps {
  actor: Actor;
  configuration: Configuration;
  mirror: Mirror;
  state: State;
  /** Nothing is approved that cannot be queued: throws when the queue cannot be reached. */
  requireQueue: () => Promise<unknown>;
  waiting?: Waiting;
}

/**
 * Approves what a run holds, up to the number it holds, and starts the run that does it. Another unfinished run over the
 * streams is returned instead, and nothing is approved. `shown`: the number that the operator saw, if that is known; another
 * one is not approved. `exactly`: only the records that are held now. Throws UsageError when nothing of the choice is held,
 * somebody else has decided, or an approval does not help.
 */
export async function approveHolds(
  { actor, configuration, mirror, state, requireQueue, waiting }: ApproveDeps,
  { runId, shown, exactly = false, ...choice }: ApproveChoice,
) {
  const { run, holds } = await chooseHolds(state.db, runId, choice);
  const final = holds.find(({ approvable }) => !approvable);
  if (final) throw new UsageError(`${final.stream}: ${describeReason(final)}`);
  if (exactly && holds.some(({ operation }) => operation === 'refused'))
    throw new UsageError('--exactly is not for what was held after refusals: leave it out', {
      remedy:
        'What was refused is not sent again, and what was sent meanwhile neither: the records are never the same.',
    });
  const [frozen] = await listFrozen(
    state.db,
    holds.map(({ stream }) => stream),
  );
  if (frozen)
    throw new UsageError(
      `${frozen.stream} is frozen until ${formatMinute(frozen.endsAt, 'UTC')}, and nothing of it is sent before: ${frozen.reason}`,
      { remedy: `Approve it then. To end a freeze: slotsync unfreeze ${frozen.stream}` },
    );
  const held = holds.reduce((sum, { count }) => sum + count, 0);
  if (shown !== undefined && shown !== held)
    throw new UsageError(
      `run ${runId} holds ${formatNumber(held)} now, not ${formatNumber(shown)}; nothing was approved`,
    );
  const streams = selectStreams(
    configuration,
    holds.map(({ stream }) => stream),
  );
  await requireSources(mirror, { streams });
  await requireQueue();
  const digested = [];
  for (const hold of holds) digested.push({ ...hold, keysDigest: await digestHeldKeys(state, hold) });
  const request = {
    ...sameAgain(run),
    startedBy: 'command' as const,
    streams: streams.map(({ name }) => name),
    fingerprints: configuration.fingerprints,
  };
  const given = { runId, choice, shown: digested, exactly, hours: configuration.approvalHours, actor };
  return { ...(await approveHeld(state.db, request, given, waiting)), holds };
}

/** Throws UsageError when another run was in the way, and nothing is approved. */
export function requireStarted({ run, started }: { run: Run; started: boolean }): void {
  if (started) return;
  const state = run.pausedAt ? `paused: slotsync resume ${run.id}` : 'not finished yet';
  throw new UsageError(`nothing was approved: run ${run.id} over the same streams is ${state}`);
}
