// The chain of records that a record waits for, up to its end: something has to be done there.
import type { Queries } from '../state/database.js';
import { findExceptions } from '../state/exceptions.js';
import { nameOfGate, readGates, type Gate } from '../state/gates/gates.js';
import { recordName, type RecordKey } from '../state/records/outcome-types.js';
import type { RecordRow } from '../state/records/read/record-details.js';
import { createFollower, readChainLinks, type End } from '../state/records/read/waiting-chains.js';
import type { RecordStatus } from '../state/schema.js';
import { findHoldingGates } from './holding-gate.js';

/**
 * `held`: a gate keeps them back. `excepted`: an exception leaves them as they are. Of records that are waited for, also `absent`: the state has no record of
 * the key; `synced`, `retired`: the next run looks at what waits; `cycle`: they wait for each other.
 */
export type CauseStatus = RecordStatus | 'held' | 'excepted' | 'absent' | 'cycle';

export interface Chain {
  /** The first of the records on the way to the end. */
  via: RecordKey[];
  /** How many records there are on the way. */
  between: number;
  end: RecordKey & {
    status: CauseStatus;
    code: string | null;
    message: string | null;
    /** The gate that keeps it back. */
    gate: Gate | null;
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
  const unsent = [...places.values()].flatMap(({ end }) => (isAccepted(end) ? [] : end));
  const holding = await findHoldingGates(db, await readGates(db), unsent);
  const exceptions = await findExceptions(db, unsent);
  return new Map(
    [...places].map(([name, { record, steps, end }]) => {
      const { stream, localKey } = end;
      const gate = holding.get(recordName(end)) ?? null;
      const message = byName.get(recordName(end))?.message ?? null;
      const own = exceptions.has(recordName(end)) ? EXCEPTED : statusOf(end);
      const whole = { stream, localKey, message, gate, ...(gate ? heldBy(gate) : own) };
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

const statusOf = ({ status, code }: End) => ({ status, code });

/** The status and the code of what a gate keeps back. */
export const heldBy = (gate: Gate) => ({ status: 'held', code: nameOfGate(gate) }) as const;

/** The status and the code of what an exception leaves as it is. */
export const EXCEPTED = { status: 'excepted', code: null } as const;

/** Records behind it wait for the next run. */
export const isAccepted = ({ status }: End) => status === 'synced' || status === 'retired';
