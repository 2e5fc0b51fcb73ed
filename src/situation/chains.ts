// The chain of records that a record waits for, up to its end: something has to be done there.
import type { Queries } from '../state/database.js';
import { readChainLinks } from '../state/records/read/waiting-chains.js';
import { recordName, type RecordKey } from '../state/records/outcome-types.js';
import type { RecordRow } from '../state/records/read/record-details.js';
import { readGates } from '../state/gates/gates.js';
import type { CauseStatus } from './causes.js';
import { createFollower } from './ends-of-waiting.js';
import { findHolders, isAccepted, NO_GATE, type FactsOfGate } from './holders.js';

export interface Chain {
  /** The first of the records on the way to the end. */
  via: RecordKey[];
  /** How many records there are on the way. */
  between: number;
  end: RecordKey &
    FactsOfGate & {
      status: CauseStatus;
      code: string | null;
      message: string | null;
      /** Whether its stream is in the configuration; null or undefined: that was not looked up. */
      isConfigured?: boolean | null;
    };
}

/** Named one by one. */
const MOST_ON_THE_WAY = 2;

/** The chain of one record that is not in sync. */
export async function readChainOf(
  db: Queries,
  record: Pick<RecordRow, 'status' | 'waitsFor'> | undefined,
): Promise<Chain | undefined> {
  if (!record?.waitsFor || record.status === 'synced' || record.status === 'retired') return undefined;
  const [stream = '', localKey = ''] = JSON.parse(record.waitsFor) as string[];
  const waitsFor = { stream, localKey };
  return (await readChains(db, [waitsFor])).get(recordName(waitsFor));
}

/** The chains that begin with these records, by `recordName`. */
export async function readChains(db: Queries, waitedFor: readonly RecordKey[]): Promise<Map<string, Chain>> {
  const links = await readChainLinks(db, waitedFor);
  const byName = new Map(links.map((link) => [recordName(link), link]));
  const follow = createFollower(links);
  const places = new Map(waitedFor.map((record) => [recordName(record), { record, ...follow(record) }]));
  const holders = await findHolders(
    db,
    await readGates(db),
    [...places.values()].flatMap(({ end }) => (isAccepted(end) ? [] : end)),
  );
  return new Map(
    [...places].map(([name, { record, steps, end }]) => {
      const { stream, localKey, status, code } = end;
      const message = byName.get(recordName(end))?.message ?? null;
      const whole = { ...NO_GATE, status, code, ...holders.get(recordName(end)), stream, localKey, message };
      return [name, { via: viaOf(record, Math.min(steps, MOST_ON_THE_WAY)), between: steps, end: whole }];
    }),
  );

  function viaOf(first: RecordKey, count: number): RecordKey[] {
    const via: RecordKey[] = [];
    for (let next: RecordKey | null | undefined = first; next && via.length < count;) {
      via.push({ stream: next.stream, localKey: next.localKey });
      next = byName.get(recordName(next))?.waitsFor;
    }
    return via;
  }
}
