// Why records are not in sync, by root cause: a record that waits for another one is counted with the record at the end
// of its chain of waiting, so that one dead record and the thousand that wait for it are one cause.
import type { Queries } from '../state/database.js';
import { findExceptions } from '../state/exceptions.js';
import { nameOfGate, readGates, type Gate } from '../state/gates/gates.js';
import {
  countFailures,
  listWaitedFor,
  readMessages,
  type WaitedFor,
} from '../state/records/read/count-failures.js';
import type { FailureFilter } from '../state/records/read/failure-filter.js';
import { recordName } from '../state/records/outcome-types.js';
import { createFollower, type End } from '../state/records/read/waiting-chains.js';
import { inSnapshot } from '../state/snapshot.js';
import { describeReason } from '../sync/limits/hold-reason.js';
import { EXCEPTED, heldBy, isAccepted, type CauseStatus } from './chains.js';
import { findHoldingGates } from './holding-gate.js';

/** Records of one stream that are not in sync with the same status and code, and those that wait for them. */
export interface Cause {
  stream: string;
  status: CauseStatus;
  /** The error code; of what is held, the name of the gate. */
  code: string | null;
  /** The gate that keeps them back. */
  gate: Gate | null;
  /** The message of the first of `keys`; of what is held, the reason as a sentence. */
  message: string | null;
  /** How many different messages the records have. */
  messages: number;
  /** Records that are the cause themselves. */
  records: number;
  /** Some of them: first those that most records wait for. */
  keys: string[];
  /** Failed records that are in the inbox to be sent again. */
  inInbox: number;
  /** Whether the stream is in the configuration; null: that was not looked up. */
  isConfigured: boolean | null;
  /** Records that wait for them, by stream and in all, also through others. */
  waitingByStream: Record<string, number>;
  waiting: number;
  /** Records of the longest chain of waiting, without the cause. */
  depth: number;
  /** The number of these records that the filter names. */
  matching: number;
  /** When the oldest of all these records became so. Of one that failed: its last attempt. */
  since: Date;
  /** Attempts of the record that was tried most often since it was last accepted. */
  attempts: number;
}

/** A run sends it, or a worker takes it from the inbox: it has not failed, and nobody has to act. */
export const isOnItsWay = ({ status, inInbox, records, isConfigured }: Cause): boolean =>
  isConfigured !== false && (status === 'pending' || (status === 'failed' && inInbox === records));

const MOST_KEYS = 5;
/** After every time. */
const LATEST = new Date(8.64e15);

/**
 * The causes of the records that the filter names, those that most records wait for first. A cause is counted whole,
 * whichever of its records are named. `configured`: the streams of the configuration, where it could be read.
 */
export async function listCauses(
  db: Queries,
  filter: FailureFilter = {},
  configured?: readonly string[],
): Promise<Cause[]> {
  return inSnapshot(db, (tx) => readCauses(tx, filter, configured));
}

/** Whether a stream is one of these; null: they are not known. */
export const isConfigured = ({ stream }: { stream: string }, configured?: readonly string[]) =>
  configured ? configured.includes(stream) : null;

/** The same within a snapshot. */
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

/** Counts what waits with the causes at the ends of its chains. */
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
  // Records that the filter names come first, then those that most records wait for.
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
    // Others are counted already: as records that are not in sync, or as held.
    if ((isOnlyWaitedFor(end) || cause.status === 'excepted') && cause.status !== 'held')
      cause.records += end.members.length;
    // Each record of a cycle is also among those that wait for another one of it.
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

/** The identity of a cause. */
const nameOf = ({ stream, status, code, gate }: Partial<Cause>) =>
  JSON.stringify([stream, status, code, gate?.reason ?? null]);

/** Nothing waits for it yet. Without more facts, it is known only by what waits for it. */
export const causeOf = ({
  stream,
  status,
  code,
  ...known
}: Pick<Cause, 'stream' | 'status' | 'code'> & Partial<Cause>): Cause => ({
  stream,
  status,
  code,
  records: 0,
  matching: 0,
  inInbox: 0,
  messages: 0,
  attempts: 0,
  since: LATEST,
  keys: [],
  waitingByStream: {},
  waiting: 0,
  depth: 0,
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

/** Whether the filter of `failures` fits the keys of a gate: `--code` may be the gate's name or its reason. */
export const isNamedBy = ({ stream, status, code, since, runId }: FailureFilter, gate: Gate): boolean =>
  (stream ?? gate.stream) === gate.stream &&
  (status ?? 'held') === 'held' &&
  [undefined, nameOfGate(gate), gate.reason].includes(code) &&
  (since ?? gate.since) <= gate.since &&
  (runId ?? gate.runId) === gate.runId;

/** Adds to each cause the message of its first key. */
async function addMessages(tx: Queries, causes: readonly Cause[]): Promise<void> {
  const firstOf = ({ stream, keys: [localKey = ''] }: Cause) => ({ stream, localKey });
  const messages = await readMessages(tx, causes.map(firstOf));
  for (const cause of causes) cause.message ??= messages.get(recordName(firstOf(cause))) ?? null;
}
