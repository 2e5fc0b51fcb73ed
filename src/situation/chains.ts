// Chains of records that wait for each other. The last record of a chain is the one that somebody has to correct.
import type { Queries } from '../state/database.js';
import { findExceptions } from '../state/exceptions.js';
import { nameOfGate, readGates, type Gate } from '../state/gates/gates.js';
import { recordName, type RecordKey } from '../state/records/outcome-types.js';
import type { RecordRow } from '../state/records/read/record-details.js';
import { createFollower, readChainLinks, type End } from '../state/records/read/waiting-chains.js';
import type { RecordStatus } from '../state/schema.js';
import { findHeld } from '../state/gates/held.js';

/**
 * Status of a cause. `held`: a gate holds the records. `excepted`: an exception leaves them as they are. A record at
 * the end of a chain can also be `absent` (not in the state), `cycle` (part of a circular reference), or `synced` or
 * `retired` (the next run sends the waiting records).
 */
export type CauseStatus = RecordStatus | 'held' | 'excepted' | 'absent' | 'cycle';

export interface Chain {
  /** First records on the way to the end, at most `MOST_ON_THE_WAY`. */
  via: RecordKey[];
  /** Number of all records on the way to the end. */
  between: number;
  end: RecordKey & {
    status: CauseStatus;
    code: string | null;
    message: string | null;
    /** Gate that holds the last record of the chain, or null. */
    gate: Gate | null;
    /** True if the stream of the last record is configured. Null or undefined if the configuration was not read. */
    isConfigured?: boolean | null;
  };
}

const MOST_ON_THE_WAY = 2;

/** Returns the chain that one record waits for. Undefined if the record is in sync or waits for no record. */
export async function readChainOf(
  db: Queries,
  record: Pick<RecordRow, 'status' | 'waitsFor'> | undefined,
): Promise<Chain | undefined> {
  if (!record?.waitsFor || record.status === 'synced' || record.status === 'retired') return undefined;
  const [stream = '', localKey = ''] = JSON.parse(record.waitsFor) as string[];
  const waitsFor = { stream, localKey };
  return (await readChains(db, [waitsFor])).get(recordName(waitsFor));
}

/** Returns the chains that begin with the given records, by `recordName`. */
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

export const heldBy = (gate: Gate) => ({ status: 'held', code: nameOfGate(gate) }) as const;

/** Status and code of a record that an exception leaves as it is. */
export const EXCEPTED = { status: 'excepted', code: null } as const;

/** Returns true if the service accepted the last record of the chain. The next run then sends the waiting records. */
export const isAccepted = ({ status }: End) => status === 'synced' || status === 'retired';

// Finds the gate that holds a key, so that the key is not sent now.

/** Returns the gate that holds each key, by `recordName`. Its `since` is the time when that key was held. */
export async function findHoldingGates(
  db: Queries,
  gates: readonly Gate[],
  keys: readonly RecordKey[],
): Promise<Map<string, Gate>> {
  const holding = new Map<string, Gate>();
  for (const stream of new Set(gates.map((gate) => gate.stream))) {
    const own = new Set(keys.flatMap((key) => (key.stream === stream ? key.localKey : [])));
    for (const [localKey, { gate: operation, reason, since }] of await findHeld(db, stream, [...own])) {
      const gate = gates.find(
        (one) => one.stream === stream && one.operation === operation && one.reason === reason,
      );
      if (gate) holding.set(recordName({ stream, localKey }), { ...gate, since });
    }
  }
  return holding;
}

export async function readHoldingGate(db: Queries, key: RecordKey): Promise<Gate | undefined> {
  const gates = await readGates(db, { stream: key.stream });
  return (await findHoldingGates(db, gates, [key])).get(recordName(key));
}
