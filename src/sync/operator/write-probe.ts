// Tests how the service writes, with one object that an operator names. Writes the object back unchanged, then without
// one field, and then unchanged again. So surprises occur with this object, and not when a sync writes thousands.
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import type { Destination, FoundObject } from '../../destination/destination.js';
import { messageWithDetail, UsageError } from '../../errors/errors.js';
import { diffCarried, diffObjects } from '../../streams/destination-object.js';
import type { Assumption } from './probe-assumptions.js';

export interface WriteProbe {
  /** The service's number of the object to write. */
  number: string;
  /** External id to assign if the object has none. Undefined: an id that is made of the number. */
  externalId: string | undefined;
}

const CONTEXT = { lane: 'incremental' } as const;
const WRITE = 'write';
const REPLACE = 'replace';
const ASSIGN = 'assign-external-ids';
const PUT_BACK = '; it was put back';
/** Seconds between two reads of an object that may still be shown as before the write. */
const READ_AGAIN_SECONDS = 1;

/**
 * Reads the object, writes it back, writes it without one field, restores it, and returns which assumptions held. An
 * object without an external id gets one. Throws UsageError if the object does not exist, or the external id is taken.
 * Before the first write, calls `requireWritable` with the object and the field to leave out; if it throws, nothing is
 * written.
 */
export async function probeWrite(
  destination: Destination,
  { number, externalId = `slotsync_${number}` }: WriteProbe,
  requireWritable: (object: FoundObject, leftOut: string | undefined) => Promise<void>,
): Promise<Assumption[]> {
  const readObject = async (): Promise<FoundObject | undefined> =>
    (await destination.findObjectsByNumber([number], '', CONTEXT)).get(number);
  const before = await readObject();
  if (before === undefined) {
    throw new UsageError(`the service has no object ${number}`, {
      remedy:
        'Name the number of an object that may be written: slotsync explain shows it, as does the service.',
    });
  }
  if (before.typeId === '')
    throw new UsageError(`object ${number} is read without its type: it cannot be written back`);
  const leftOut = before.fields.at(-1)?.fieldId;
  await requireWritable(before, leftOut);
  const extId = before.extId ?? externalId;
  const findNamed = async () => (await destination.findObjects([extId], before.typeId, CONTEXT)).get(extId);
  if (before.extId === undefined) {
    const taken = await findNamed();
    if (taken !== undefined)
      throw new UsageError(`${extId} is the external id of object ${taken.id}`, {
        remedy: 'Name another one with --external-id.',
      });
  }

  const isAssigned = before.extId === undefined;
  const { id, ...whole } = { ...before, extId };
  /** Returns the names of fields that differ from the object as first read. Undefined if the object is not found. */
  const readDifferences = async () => {
    const now = await readObject();
    if (!now) return undefined;
    const is = { ...now, extId };
    return [...diffObjects(whole, is).map(({ field }) => field), ...diffCarried(whole, is)];
  };
  /** Reads the object until it differs as expected, at most for the time by which search results may lag behind. */
  const readUntil = async (expected: readonly string[]) => {
    let differing = await readDifferences();
    for (let waited = 0; waited < destination.findLagSeconds; waited += READ_AGAIN_SECONDS) {
      if (isDeepStrictEqual(differing, expected)) break;
      await sleep(READ_AGAIN_SECONDS * 1000);
      differing = await readDifferences();
    }
    return differing;
  };
  const assume = (name: string, held: Assumption['held'], found: string): Assumption => ({
    name,
    held,
    found: `object ${number}: ${found}`,
    needed: name !== ASSIGN || destination.assignsExternalIds,
  });
  /** Writes the object as it was first read. Returns the end of a sentence that says whether this worked. */
  const putBack = async (): Promise<string> => {
    const refusal = await write(destination, whole);
    const left = await readUntil([]);
    if (left?.length === 0) return PUT_BACK;
    const missing = left ? left.join(', ') : 'the whole object';
    return `; ${missing} could not be put back (${refusal ?? 'the write was accepted'}): enter it at the service`;
  };

  const refusal = await write(destination, { ...whole, ...(isAssigned ? { id } : {}) });
  const assigned = isAssigned && refusal === undefined ? (await readObject())?.extId : undefined;
  const changed = await readDifferences();

  async function judgeWritten(): Promise<Assumption> {
    if (refusal !== undefined) return assume(WRITE, isAssigned ? 'unknown' : 'no', refusal);
    if (isAssigned && assigned !== extId)
      return assume(WRITE, 'unknown', 'the object itself was not written');
    if (changed === undefined) return assume(WRITE, 'no', 'it was accepted, and is not found any more');
    if (changed.length === 0)
      return assume(WRITE, 'yes', 'written back as it was read, and read again without a difference');
    const differs = `it was accepted, and differs now in ${changed.join(', ')}`;
    return assume(WRITE, 'no', `${differs}${await putBack()}`);
  }

  async function judgeReplaced(isWritten: boolean): Promise<Assumption> {
    if (!isWritten) return assume(REPLACE, 'unknown', 'not tested, since it was not written back as it was');
    if (leftOut === undefined)
      return assume(REPLACE, 'unknown', 'it has no field that could be left out: name another object');
    const fields = whole.fields.filter(({ fieldId }) => fieldId !== leftOut);
    const refused = await write(destination, { ...whole, fields });
    const expected = destination.patches ? [] : [leftOut];
    const differing = refused === undefined ? await readUntil(expected) : undefined;
    const end = await putBack();
    if (refused !== undefined)
      return assume(REPLACE, 'unknown', `without ${leftOut} it was not accepted: ${refused}${end}`);
    const { patches } = destination;
    if (differing?.length === 0) {
      const kept = `the service merges: ${leftOut} was left out and kept its value`;
      if (patches) return assume(REPLACE, 'yes', `${kept}, as write.patches of the dialect says`);
      const lost = 'A value that a row loses would stay at the service, unless a dialect has write.patches';
      return assume(REPLACE, 'no', `${kept}. ${lost}`);
    }
    if (!isDeepStrictEqual(differing, [leftOut]) || end !== PUT_BACK)
      return assume(
        REPLACE,
        'no',
        `${leftOut} was left out, and ${differing?.join(', ') ?? 'it'} changed${end}`,
      );
    const emptied = `replaced whole: ${leftOut} was left out and became empty${end}`;
    return patches
      ? assume(REPLACE, 'no', `${emptied}. write.patches of the dialect says otherwise`)
      : assume(REPLACE, 'yes', emptied);
  }

  async function judgeAssigned(): Promise<Assumption> {
    if (!isAssigned)
      return assume(ASSIGN, 'unknown', 'it has an external id; name an object without one to test this');
    if (refusal !== undefined) return assume(ASSIGN, 'no', refusal);
    if (assigned === extId) return assume(ASSIGN, 'yes', `it has the external id ${extId} now`);
    const created = await findNamed();
    const how = created
      ? `the number was ignored, and object ${created.id} was created with the external id ${extId}: remove it at the service`
      : 'it was accepted, and the object has no external id';
    return assume(ASSIGN, 'no', how);
  }

  const written = await judgeWritten();
  return [written, await judgeReplaced(written.held === 'yes'), await judgeAssigned()];
}

/** Writes an object. Returns the reason if the service did not accept it. */
async function write(
  destination: Destination,
  object: Parameters<Destination['putObjects']>[0][number],
): Promise<string | undefined> {
  try {
    const result = (await destination.putObjects([object], CONTEXT)).get(object.extId);
    if (result === undefined) return 'the answer does not name it';
    if (result.accepted) return undefined;
    return result.status === undefined ? result.message : `refused: ${result.message}`;
  } catch (error) {
    return messageWithDetail(error);
  }
}
