// The objects of a stream's types at the service, for a plan that asks about many creates: list by list, until it is cheaper to
// read the types whole. A first load of 100 000 objects into an empty type takes two requests here instead of 100.
import type { Context } from '../../destination/client.js';
import type { Destination, FoundObject } from '../../destination/destination.js';
import type { Stream } from '../../streams/stream.js';

export type TypeDestination = Pick<
  Destination,
  | 'findObjects'
  | 'findObjectsByNumber'
  | 'countObjects'
  | 'listObjects'
  | 'pageSize'
  | 'patches'
  | 'canChangeTypes'
>;

/** A type with more objects is not read whole: they are kept in memory. */
const MOST_READ = 20_000;

export type TypeObjects = ReturnType<typeof createTypeObjects>;

/**
 * Answers from the service, for as long as one plan of one stream lasts. After the first list the objects of the types are
 * counted. Of empty types nothing more is asked for; others are read once there were as many lists as they have pages. So
 * there are at most twice as many requests as would have been the fewest, and one more, however many lists come.
 */
export function createTypeObjects(destination: TypeDestination, stream: Stream, context: Context) {
  const { type, objectTypes } = stream;
  /** Lists asked for, and the external ids of the type found by them: a reading without one of these is not believed. */
  let lists = 0;
  const found = new Set<string>();
  /** Infinity: the service does not tell, or not truly. */
  let count: number | undefined;
  let whole: readonly FoundObject[] | undefined;
  let byExtId: ReadonlyMap<string, FoundObject> = new Map();
  let byNumber: ReadonlyMap<string, FoundObject> = new Map();

  /** Undefined where it fails: the lists that are asked for instead succeed, or say what is wrong. */
  async function unlessFailing<T>(answer: Promise<T>): Promise<T | undefined> {
    try {
      return await answer;
    } catch {
      context.signal?.throwIfAborted();
      return undefined;
    }
  }

  async function readWhenCheaper(): Promise<void> {
    if (whole || lists === 0) return;
    count ??= (await unlessFailing(destination.countObjects(objectTypes, context))) ?? Infinity;
    if (count > Math.min(lists * destination.pageSize, MOST_READ)) return;
    const objects = count === 0 ? [] : await unlessFailing(destination.listObjects(objectTypes, context));
    byExtId = new Map(
      objects?.flatMap((object) => (object.extId === undefined ? [] : [[object.extId, object]])),
    );
    byNumber = new Map(objects?.map((object) => [object.id, object]));
    if (objects && [...found].every((extId) => byExtId.has(extId))) whole = objects;
    else count = Infinity;
  }

  return {
    /** The objects with these external ids. One of another type may be among them, or left out. */
    async find(extIds: readonly string[]): Promise<ReadonlyMap<string, FoundObject>> {
      await readWhenCheaper();
      if (whole) return byExtId;
      lists++;
      // The batch of an object that cannot be read says so.
      const objects = await destination.findObjects(extIds, type, context, new Map());
      for (const { typeId, extId } of objects.values()) if (objectTypes.has(typeId)) found.add(extId);
      return objects;
    },

    /** The objects with these numbers; of another type as above. */
    findByNumber: async (numbers: readonly string[]): Promise<ReadonlyMap<string, FoundObject>> =>
      whole ? byNumber : destination.findObjectsByNumber(numbers, type, context, new Map()),

    /** Every object of the type; undefined while lists are asked for. */
    whole: (): readonly FoundObject[] | undefined => whole,
  };
}
