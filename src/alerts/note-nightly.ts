// Notes the start and the end of each nightly run once, as an alert that is open during the run. Any process may end
// the run: the next evaluation notes the end. Messages are sent like those of other alerts.
import { randomUUID } from 'node:crypto';
import { needsPerson, type Concern } from '../documents/concerns/concerns.js';
import type { Grounds } from '../situation/situation.js';
import { noteCause, openAlert, recoverAlert } from '../state/alerts.js';
import type { Queries } from '../state/database.js';
import { readGates, waitsForOperator } from '../state/gates/gates.js';
import { listUnnotedNightly, readLatestNightly, type NightlyRun } from '../state/nightly-runs.js';
import { listStreams } from '../state/streams.js';
import { inSnapshot } from '../state/snapshot.js';
import type { ParsedConfig } from '../streams/config-schema.js';
import { namesOf, type Channel } from './channels.js';

interface Found {
  situation: Pick<Grounds, 'streamStates' | 'gates' | 'unsettled'>;
  concerns: readonly Concern[];
  channels: readonly Channel[];
  report: ParsedConfig['report'];
}

export async function noteNightly(
  tx: Queries,
  { situation, concerns, channels, report }: Found,
): Promise<void> {
  for (const { status, alert, ...nightly } of await listUnnotedNightly(tx)) {
    const { id: runId, finishedAt } = nightly;
    const titleOf = (what: string) => ({ title: `Nightly sync, run ${runId}: ${what}` });
    const message = {
      ...titleOf('started'),
      details: [],
      commands: [],
      run: { id: runId, uuid: randomUUID() },
    };
    const { run } = alert?.message ?? message;
    const id =
      alert?.id ??
      (await openAlert(
        tx,
        { cause: `nightly_run ${runId}`, condition: 'nightly_run', message },
        namesOf(channels, 'nightly runs'),
      ));
    if (id === undefined || run === undefined || finishedAt === null) continue;
    const needed = concerns.filter(needsPerson).length;
    const isSomething = status !== 'succeeded' || needed > 0 || situation.unsettled > 0;
    const isReported = report !== undefined && (report.only === 'always' || isSomething);
    await noteCause(tx, id, false);
    await recoverAlert(tx, id, {
      afterMinutes: 0,
      message: {
        ...titleOf(needed > 0 ? `${status}, needs a person: ${needed}` : status),
        run: { ...run, isBad: isBad(nightly, situation) },
      },
      channels: [
        ...namesOf(channels, 'nightly runs'),
        ...(isReported ? namesOf(channels, 'ends of nightly runs') : []),
      ],
    });
  }
}

/** Returns true if the latest nightly run ended badly, and its problem still exists. */
export async function isLatestNightlyBad(db: Queries, limitMs: number): Promise<boolean> {
  return inSnapshot(
    db,
    async (tx) => {
      const latest = await readLatestNightly(tx);
      const situation = { streamStates: await listStreams(tx), gates: await readGates(tx) };
      return latest !== undefined && isBad(latest, situation);
    },
    { limitMs },
  );
}

/**
 * Returns true if the run left a problem of a stream, or a gate that has waited for an operator since before the run
 * ended. Answered gates, freezes, and problems of later runs do not count.
 */
function isBad(
  { id, streams, finishedAt }: NightlyRun,
  { streamStates, gates }: Pick<Grounds, 'streamStates' | 'gates'>,
): boolean {
  const isHeld = gates.some(
    (gate) =>
      waitsForOperator(gate) &&
      streams.includes(gate.stream) &&
      (finishedAt === null || gate.since <= finishedAt),
  );
  return isHeld || streamStates.some(({ problem }) => problem?.runId === id);
}
