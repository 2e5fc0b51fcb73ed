// Approves closed gates: stores how many records an operator permits, and starts a whole sync for them.
import { selectStreams, type Configuration } from '../../config/config-file.js';
import { UsageError } from '../../errors/errors.js';
import type { Mirror } from '../../mirror/mirror.js';
import type { Actor } from '../../state/actions.js';
import type { State } from '../../state/database.js';
import { listFrozen } from '../../state/freezes.js';
import { approveGates, chooseGates, type GateChoice } from '../../state/gates/answers.js';
import { isApprovable, nameOfGate, readGates, type Gate } from '../../state/gates/gates.js';
import type { Waiting } from '../../state/locks.js';
import type { Run } from '../../state/runs/read-runs.js';
import { markDue } from '../../state/streams.js';
import { startRun } from '../../state/runs/start-run.js';
import { formatMinute, formatNumber } from '../../text/format.js';
import { describeOpening, describeReason } from '../limits/hold-reason.js';

type ApproveChoice = GateChoice & { runId: number; shown?: number | undefined; exactly?: boolean };

export interface ApproveDeps {
  actor: Actor;
  configuration: Configuration;
  mirror: Mirror;
  state: State;
  /** Throws if the queue cannot be reached, because the sync that uses the approval could not be queued. */
  requireQueue: () => Promise<unknown>;
  waiting?: Waiting;
}

/**
 * Approves the chosen gates for the number of records that they hold, and starts a whole sync of their streams. If
 * another run over these streams is unfinished, returns that run and approves nothing. `shown`: number that the
 * operator saw; a different number is not approved. `exactly`: approves only the records that are held now. Throws
 * UsageError if an approval does not help.
 */
export async function approve(
  { actor, configuration, mirror, state, requireQueue, waiting }: ApproveDeps,
  { runId, shown, exactly = false, ...choice }: ApproveChoice,
): Promise<{ run: Run; started: boolean; approvals: Gate[] }> {
  const gates = await chooseGates(state.db, runId, choice);
  const names = [...new Set(gates.map(({ stream }) => stream))];
  await requireApprovable(state, gates, { configuration, exactly });
  const held = gates.reduce((sum, { count }) => sum + count, 0);
  if (shown !== undefined && shown !== held)
    throw new UsageError(
      `run ${runId} holds ${formatNumber(held)} now, not ${formatNumber(shown)}; nothing was approved`,
    );
  const streams = selectStreams(configuration, names);
  await mirror.requireSources(streams);
  await requireQueue();
  const request = {
    kind: 'sync',
    lane: 'sync',
    startedBy: 'command',
    streams: streams.map(({ name }) => name),
    fingerprints: configuration.fingerprints,
  } as const;
  return state.db.transaction(async (tx) => {
    const { run, started } = await startRun(tx, request, waiting);
    if (!started) return { run, started, approvals: [] };
    await markDue(tx, names, 'approved');
    await approveGates(tx, gates, { actor, runId: run.id, exactly, hours: configuration.approvalHours });
    const approvals = (await readGates(tx, { runId })).filter(({ approval }) => approval?.runId === run.id);
    return { run, started, approvals };
  });
}

/** Throws UsageError if an approval could not open one of the gates, for example because the stream is frozen. */
async function requireApprovable(
  { db }: State,
  gates: readonly Gate[],
  { configuration, exactly }: Pick<ApproveDeps, 'configuration'> & { exactly: boolean },
): Promise<void> {
  const names = gates.map(({ stream }) => stream);
  const left = names.find((stream) => configuration.streams.every(({ name }) => name !== stream));
  if (left !== undefined)
    throw new UsageError(`${left} is not in the configuration, so nothing of it is sent`, {
      remedy: `Put the stream back. If it was renamed: slotsync rename-stream ${left} <new>`,
    });
  const [frozen] = await listFrozen(db, names);
  if (frozen)
    throw new UsageError(
      `${frozen.stream} is frozen until ${formatMinute(frozen.endsAt, configuration.schedule?.timezone ?? 'UTC')}, and nothing of it is sent before: ${frozen.reason}`,
      {
        remedy: frozen.isDeclared
          ? 'Approve it then. The freeze is one of the configuration.'
          : `Approve it then. To end the freeze: slotsync unfreeze ${frozen.stream}`,
      },
    );
  const closed = gates.find((gate) => !isApprovable(gate));
  if (closed) {
    const remedy = describeOpening(closed);
    throw new UsageError(
      `${closed.stream}: ${describeReason(closed)}`,
      remedy === undefined ? {} : { remedy },
    );
  }
  const ofAll = gates.find(({ operation }) => operation === '*');
  if (exactly && ofAll)
    throw new UsageError(
      `--exactly is not for a gate of all operations (${nameOfGate(ofAll)}): leave it out`,
      {
        remedy: 'The sync plans the stream anew, so the records are never the same.',
      },
    );
}

/** Throws UsageError if nothing was approved, because another run over the streams is unfinished. */
export function requireStarted({ run, started }: { run: Run; started: boolean }): void {
  if (started) return;
  const state = run.pausedAt ? `paused: slotsync resume ${run.id}` : 'not finished yet';
  throw new UsageError(`nothing was approved: run ${run.id} over the same streams is ${state}`);
}
