// The end of a freeze: what it held is planned anew, so that it goes as the mirror is by then, under the limits as they are
// then. A run is started for it once; whatever comes of that run, the next sync plans the stream again.
import { query, type Queries } from '../../state/database.js';
import { FROZEN_STREAMS } from '../../state/freezes.js';
import { sameAgain } from '../../state/runs/insert-run.js';
import type { Run } from '../../state/runs/read-runs.js';
import { LEAVES_FORCED } from '../../state/runs/replaced-runs.js';
import { startFreeRun } from '../../state/runs/start-run.js';
import { fingerprintsOf } from '../../streams/fingerprints.js';
import type { ScheduleDeps } from './start-due-syncs.js';

/** The streams that a run held while they were frozen, and that no later run covers. */
type Thawed = Pick<Run, 'id' | 'kind' | 'lane' | 'range' | 'streams'>;

/** Starts runs over what freezes that have ended held, and returns them to be queued. Streams of unfinished runs are left out. */
export async function startThawed({ state, streams, log }: ScheduleDeps): Promise<Run[]> {
  const started: Run[] = [];
  for (const { id, ...held } of await listThawed(state.db)) {
    const known = held.streams.filter((name) => streams.has(name));
    if (known.length === 0) continue;
    const fingerprints = fingerprintsOf(streams.values());
    // Not by the schedule: such a sync counts as one of all its streams.
    const request = { ...sameAgain(held), startedBy: 'change', streams: known, fingerprints } as const;
    const { run } = await startFreeRun(state.db, request);
    if (!run) continue;
    log.info(
      { runId: run.id, heldBy: id, streams: run.streams },
      'a freeze has ended: what waited is planned',
    );
    started.push(run);
  }
  return started;
}

async function listThawed(db: Queries): Promise<Thawed[]> {
  return query<Thawed>(db)`
    SELECT r.id::float8 AS id, r.kind, r.lane, r.range, array_agg(h.stream) AS streams
    FROM slotsync.holds AS h JOIN slotsync.runs AS r ON r.id = h.run_id
    WHERE h.operation = 'frozen' AND h.state = 'open' AND r.finished_at IS NOT NULL AND h.stream <> ALL (${FROZEN_STREAMS})
      AND NOT EXISTS (SELECT FROM slotsync.runs AS l WHERE l.id > r.id AND h.stream = ANY (l.streams)
        AND l.kind NOT IN ('incremental', 'reconcile', 'verify') AND NOT ${LEAVES_FORCED})
    GROUP BY r.id ORDER BY r.id DESC`;
}
