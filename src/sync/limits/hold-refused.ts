// The limit of refusals. A mapping or a service that has changed may make every object of a stream be refused: the rest is
// held before all of it has cost a request and been given up. Counted whenever a batch ends, because no plan can know it.
import type { Queries } from '../../state/database.js';
import { holdRest, readAccepted, readRefusals } from '../../state/runs/hold-rest.js';
import type { Stream } from '../../streams/stream.js';
import { isRefusedTooOften } from './mass-change-limits.js';

/** Holds the rest of a stream in a run where too much of it was refused. Returns how many records are held. */
export async function holdRefused(db: Queries, stream: Stream, runId: number): Promise<number> {
  const part = { runId, stream: stream.name };
  const limit = stream.limits.refused;
  const refusals = await readRefusals(db, part);
  if (!refusals || refusals.records <= limit.count) return 0;
  const { accepted, allowed } = await readAccepted(db, part);
  const sent = accepted + refusals.records;
  if (!isRefusedTooOften(stream, { refused: refusals.records, sent, allowed })) return 0;
  const facts = {
    limit,
    refused: { ...refusals, sent },
    ...(allowed > 0 && { approval: { allowed, isOther: false } }),
  };
  return holdRest(db, { ...part, operation: 'refused', approvable: true }, facts);
}
