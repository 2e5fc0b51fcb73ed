// The one check that writes: one named object is written back as it was read. What nobody has published of PUT /objects is
// seen on this object before a sync writes thousands.
import type { Destination, FoundObject } from '../../destination/destination.js';
import { messageWithDetail, UsageError } from '../../errors/errors.js';
import { diffCarried, diffObjects } from '../../streams/destination-object.js';
import type { Assumption } from './probe-assumptions.js';

export interface WriteProbe {
  /** The service's number of the object. */
  number: number;
  /** The external id that it gets if it has none. */
  externalId: string;
}

const CONTEXT = { lane: 'incremental' } as const;
const WRITE = 'write';
const ASSIGN = 'assign-external-ids';

/**
 * Reads the object, writes it back unchanged, reads it again, and says what held. One without an external id gets one by
 * this. Throws UsageError when there is no such object, or the external id is another object's; then nothing is written, nor
 * when `requireWritable` throws for the type of the object.
 */
export async function probeWrite(
  destination: Destination,
  { number, externalId }: WriteProbe,
  requireWritable: (typeId: string) => Promise<void>,
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
  await requireWritable(before.typeId);
  const extId = before.extId ?? externalId;
  const findNamed = async () => (await destination.findObjects([extId], before.typeId, CONTEXT)).get(extId);
  if (before.extId === undefined) {
    const taken = await findNamed();
    if (taken !== undefined)
      throw new UsageError(`${extId} is the external id of object ${taken.id}`, {
        remedy: 'Name another one with --external-id.',
      });
  }

  const { id, ...object } = before;
  const isAssigned = before.extId === undefined;
  const refusal = await write(destination, { ...object, extId, ...(isAssigned ? { id } : {}) });
  const after = await readObject();
  const [was, is] = [{ ...before, extId }, after && { ...after, extId }];
  const changed = is && [...diffObjects(was, is).map(({ field }) => field), ...diffCarried(was, is)];
  const assume = (name: string, held: Assumption['held'], found: string): Assumption => ({
    name,
    held,
    found: `object ${number}: ${found}`,
    needed: name === WRITE || destination.assignsExternalIds,
  });
  const written = (): Assumption => {
    if (refusal !== undefined) return assume(WRITE, isAssigned ? 'unknown' : 'no', refusal);
    if (changed === undefined) return assume(WRITE, 'no', 'it was accepted, and is not found any more');
    return changed.length === 0
      ? assume(WRITE, 'yes', 'written back as it was read, and read again without a difference')
      : assume(WRITE, 'no', `it was accepted, and differs now in ${changed.join(', ')}`);
  };
  if (!isAssigned) {
    const unknown = 'it has an external id; name an object without one to test this';
    return [written(), assume(ASSIGN, 'unknown', unknown)];
  }
  if (refusal !== undefined) return [written(), assume(ASSIGN, 'no', refusal)];
  if (after?.extId === extId)
    return [written(), assume(ASSIGN, 'yes', `it has the external id ${extId} now`)];
  const created = await findNamed();
  const how = created
    ? `the number was ignored, and object ${created.id} was created with the external id ${extId}: remove it at the service`
    : 'it was accepted, and the object has no external id';
  return [assume(WRITE, 'unknown', 'the object itself was not written'), assume(ASSIGN, 'no', how)];
}

/** Why the write was not accepted; undefined: it was. */
async function write(
  destination: Destination,
  object: Parameters<Destination['putObjects']>[0][number],
): Promise<string | undefined> {
  try {
    const result = (await destination.putObjects([object], CONTEXT)).get(object.extId);
    if (result === undefined) return 'the answer does not name it';
    return result.accepted ? undefined : `refused: ${result.message}`;
  } catch (error) {
    return messageWithDetail(error);
  }
}
