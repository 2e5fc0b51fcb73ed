// Finds the causes why records are not in sync. A waiting record is counted with the record at the end of its waiting
// chain. One record that is given up and a thousand records that wait for it are therefore one cause.
import { type Queries, inSnapshot } from '../state/database.js';
import { findExceptions } from '../state/exceptions.js';
import { nameOfGate, readGates, type Gate } from '../state/gates/gates.js';
import {
  countFailures,
  listWaitedFor,
  readMessages,
  type WaitedFor,
  type FailureFilter,
} from '../state/records/read/failures.js';
import { recordName } from '../state/records/outcome-types.js';
import { createFollower, type End } from '../state/records/read/waiting-chains.js';
import { describeReason } from '../sync/limits/hold-reason.js';
import { EXCEPTED, heldBy, isAccepted, type CauseStatus, findHoldingGates } from './chains.js';

/** Records of one stream that are not in sync with the same status and code, and the records that wait for them. */
export interface Cause {
  stream: string;
  status: CauseStatus;
  /** Error code of the records. If the records are held, the name of the gate. */
  code: string | null;
  gate: Gate | null;
  /** Error message of the first record in `keys`. If the records are held, the reason of the hold as a sentence. */
  message: string | null;
  /** Number of different error messages of the records. */
  messages: number;
  /** Number of records that are themselves the cause. Waiting records are not included. */
  records: number;
  /** Keys of some of the records. Keys that most records wait for come first. */
  keys: string[];
  /** Number of failed records that are in the inbox to be sent again. */
  inInbox: number;
  /** True if the stream is in the configuration. Null if the configuration was not read. */
  isConfigured: boolean | null;
  /** Number of records that wait for the cause, directly or through other records, by stream and in total. */
  waitingByStream: Record<string, number>;
  waiting: number;
  /** Number of records in the longest waiting chain, without the record that is the cause. */
  depth: number;
  /** Number of records that match the filter, among the cause and the records that wait. */
  matching: number;
  /** Time of the oldest record's status. For a failed record, the time of its last attempt. */
  since: Date;
  /** Highest number of attempts that a record had since the service last accepted it. */
  attempts: number;
}

/** Returns true if a run or a worker is about to send all records of the cause, so nobody has to act. */
export const isOnItsWay = ({ status, inInbox, records, isConfigured }: Cause): boolean =>
  isConfigured !== false && (status === 'pending' || (status === 'failed' && inInbox === records));

const MOST_KEYS = 5;
/** Latest time that a `Date` can hold. */
const LATEST = new Date(8.64e15);

/**
 * Returns the causes of the records that match the filter. Causes that most records wait for come first. A cause counts
 * all of its records, even if only some match. `configured`: names of the configured streams, if known.
 */
export async function listCauses(
  db: Queries,
  filter: FailureFilter = {},
  configured?: readonly string[],
): Promise<Cause[]> {
  return inSnapshot(db, (tx) => readCauses(tx, filter, configured));
}

/** Returns true if the stream is configured. Returns null if the configured streams are not known. */
export const isConfigured = ({ stream }: { stream: string }, configured?: readonly string[]) =>
  configured ? configured.includes(stream) : null;

/** Does the work of `listCauses` in a snapshot that the caller has opened. */
export async function readCauses(
  tx: Queries,
  filter: FailureFilter,
  configured: readonly string[] | undefined,
): Promise<Cause[]> {
  const causes = new Map<string, Cause>();
  const [groups, gates, waitedFor] = await Promise.all([
    countFailures(tx, filter, MOST_KEYS),
    readGates(tx),
    listWaitedFor(tx, filter),
  ]);
  for (const group of groups) note(causes, causeOf(group));
  for (const gate of gates) note(causes, causeOfGate(gate, filter));
  await addWaiting(tx, causes, gates, waitedFor);
  const named = [...causes.values()].filter(({ matching }) => matching > 0);
  await addMessages(tx, named);
  for (const cause of named) cause.isConfigured = isConfigured(cause, configured);
  return named.toSorted(
    (a, b) =>
      b.waiting - a.waiting || b.depth - a.depth || b.records - a.records || (nameOf(a) < nameOf(b) ? -1 : 1),
  );
}

/** Adds the number of waiting records to the causes at the ends of their chains. */
async function addWaiting(
  tx: Queries,
  causes: Map<string, Cause>,
  gates: readonly Gate[],
  waitedFor: readonly WaitedFor[],
): Promise<void> {
  const follow = createFollower(waitedFor);
  const ends = new Map<End, { waiting: number; matching: number }>();
  for (const record of waitedFor) {
    const { end } = follow(record);
    const { waiting = 0, matching = 0 } = ends.get(end) ?? {};
    ends.set(end, { waiting: waiting + record.waiting, matching: matching + record.matching });
  }
  const unsent = [...ends.keys()].filter((end) => !isAccepted(end));
  const holding = await findHoldingGates(tx, gates, unsent);
  const exceptions = await findExceptions(tx, unsent);
  // Records that match the filter come first, followed by records that most records wait for.
  const sorted = [...ends].toSorted(
    ([a, x], [b, y]) =>
      y.matching - x.matching || y.waiting - x.waiting || (a.localKey < b.localKey ? -1 : 1),
  );
  const causeOfEnd = new Map<End, Cause>();
  const firstKeys = new Map<Cause, string[]>();
  for (const [end] of sorted) {
    const gate = holding.get(recordName(end));
    const { stream, status, code } = exceptions.has(recordName(end)) ? { ...end, ...EXCEPTED } : end;
    const name = nameOf(gate ? { stream, gate, ...heldBy(gate) } : { stream, status, code });
    const cause = causes.get(name) ?? note(causes, causeOf({ stream, status, code }));
    causeOfEnd.set(end, cause);
    const keys = firstKeys.get(cause) ?? [];
    firstKeys.set(cause, keys);
    if (keys.length < MOST_KEYS) keys.push(end.localKey);
    // Other records are already counted, as not in sync or as held.
    if ((isOnlyWaitedFor(end) || cause.status === 'excepted') && cause.status !== 'held')
      cause.records += end.members.length;
    // In a cycle, each record waits for another member. A member must not count both as a cause and as waiting.
    if (end.status === 'cycle') for (const { stream } of end.members) countWaiting(cause, stream, -1);
  }
  for (const record of waitedFor) {
    const { end, steps } = follow(record);
    const cause = causeOfEnd.get(end);
    if (!cause) continue; // cannot be: every end was found above
    countWaiting(cause, record.waitingStream, record.waiting);
    cause.matching += record.matching;
    cause.depth = Math.max(cause.depth, steps + 1);
    if (record.since < cause.since) cause.since = record.since;
  }
  for (const [cause, keys] of firstKeys)
    cause.keys = [...new Set([...keys, ...cause.keys])].slice(0, MOST_KEYS);
}

const isOnlyWaitedFor = (end: End) => end.status === 'absent' || end.status === 'cycle' || isAccepted(end);

function countWaiting(cause: Cause, stream: string, count: number): void {
  const sum = (cause.waitingByStream[stream] ?? 0) + count;
  cause.waiting += count;
  if (sum === 0) delete cause.waitingByStream[stream];
  else cause.waitingByStream[stream] = sum;
}

function note(causes: Map<string, Cause>, cause: Cause): Cause {
  causes.set(nameOf(cause), cause);
  return cause;
}

/** Returns text that identifies a cause: two causes with equal text are the same. */
const nameOf = ({ stream, status, code, gate }: Partial<Cause>) =>
  JSON.stringify([stream, status, code, gate?.reason ?? null]);

/** Creates a cause without waiting records. Facts that the caller omits are zero, empty or null. */
export const causeOf = (known: Pick<Cause, 'stream' | 'status' | 'code'> & Partial<Cause>): Cause => ({
  records: 0,
  matching: 0,
  inInbox: 0,
  messages: 0,
  attempts: 0,
  waiting: 0,
  depth: 0,
  since: LATEST,
  keys: [],
  waitingByStream: {},
  gate: null,
  message: null,
  isConfigured: null,
  ...known,
});

function causeOfGate(gate: Gate, filter: FailureFilter): Cause {
  const { stream, count: records, since, firstKeys: keys } = gate;
  const matching = isNamedBy(filter, gate) ? records : 0;
  const own = { stream, records, since, keys, gate, matching, ...heldBy(gate) };
  return causeOf({ ...own, messages: 1, message: describeReason(gate) });
}

/** Returns true if the filter of `slotsync failures` matches the gate. `--code` may name the gate or its reason. */
export const isNamedBy = ({ stream, status, code, since, runId }: FailureFilter, gate: Gate): boolean =>
  (stream ?? gate.stream) === gate.stream &&
  (status ?? 'held') === 'held' &&
  [undefined, nameOfGate(gate), gate.reason].includes(code) &&
  (since ?? gate.since) <= gate.since &&
  (runId ?? gate.runId) === gate.runId;

async function addMessages(tx: Queries, causes: readonly Cause[]): Promise<void> {
  const firstOf = ({ stream, keys: [localKey = ''] }: Cause) => ({ stream, localKey });
  const messages = await readMessages(tx, causes.map(firstOf));
  for (const cause of causes) cause.message ??= messages.get(recordName(firstOf(cause))) ?? null;
}
