// A person edits notes at the service while processes write the objects. The field has `write: 'changed'`: a note that a person
// entered stays, unless the row says something new, a write is lost, or the note came between the reading of an object and its write.
import type { Actor } from './actor.js';
import type { Room } from './room.js';
import type { Observer, SentObject } from './service.js';

interface Entered {
  note: string;
  /** The actors that have read the object since the note was entered. */
  seenBy: Set<Actor>;
}

export type Edits = ReturnType<typeof createEdits>;

/** Watches the notes in a room whose objects are at the service. */
export function createEdits(room: Room) {
  const faults: string[] = [];
  const noteOf = (extId: string) =>
    room.service.object(extId)?.fields.find(({ fieldId }) => fieldId === 'thing.note')?.values[0];
  /** By external id, notes of rows that were written, in order. */
  const written = new Map<string, string[]>();
  const writtenTo = (extId: string) => written.get(extId) ?? [];
  /** By external id and note, the notes of rows that had been written when a person entered the note. */
  const entered = new Map<string, Map<string, readonly string[]>>();
  /** Notes that stand at the service as a person entered them. */
  const standing = new Map<string, Entered>();
  /** Standing notes that nothing may change any more. */
  let settled: ReadonlyMap<string, string> = new Map();
  let isInterrupted = false;
  let edits = 0;

  /** Reads the note of an object, and records it as written, because processes without a scheduler may have written it. */
  function look(extId: string): string | undefined {
    const note = noteOf(extId);
    if (note === undefined || entered.get(extId)?.has(note)) return note;
    standing.delete(extId);
    if (writtenTo(extId).at(-1) !== note) written.set(extId, [...writtenTo(extId), note]);
    return note;
  }

  /** Records that the service has carried out a write of an object. */
  function wrote(actor: Actor, extId: string): void {
    const [before, last] = [standing.get(extId), writtenTo(extId).at(-1)];
    const note = look(extId);
    if (note === undefined || note === before?.note) return;
    if (entered.get(extId)?.has(note)) return void standing.set(extId, { note, seenBy: new Set() });
    const isNew = last !== note;
    if (before?.seenBy.has(actor) && !isNew && !isInterrupted)
      faults.push(
        `guarantee 4: ${actor.name} has read '${before.note}' in ${extId}, and writes '${note}' again`,
      );
  }

  const observer: Observer = {
    found: (actor, extIds) =>
      extIds.forEach((extId) => {
        look(extId);
        standing.get(extId)?.seenBy.add(actor);
      }),
    processed: (actor, objects: readonly SentObject[]) => objects.forEach(({ extId }) => wrote(actor, extId)),
  };

  return {
    faults,
    observer,
    /** Records that a write or its answer was lost, so that a note of a person may be lost beside it. */
    interrupted: () => (isInterrupted = true),

    /** Enters a new note as a person. Returns the note, or undefined if there is no object. */
    edit(extId: string): string | undefined {
      if (look(extId) === undefined) return undefined;
      const note = `by hand ${++edits}`;
      room.service.changeObject(extId, { fields: [{ fieldId: 'thing.note', values: [note] }] });
      entered.set(extId, new Map(entered.get(extId)).set(note, [...writtenTo(extId)]));
      standing.set(extId, { note, seenBy: new Set() });
      return note;
    },

    /** Records that all actors have ended. `notes` are the notes of the rows by external id. */
    rest(notes: ReadonlyMap<string, string>): void {
      for (const extId of standing.keys()) look(extId);
      const isSettled = (extId: string) => !isInterrupted && writtenTo(extId).at(-1) === notes.get(extId);
      settled = new Map(
        [...standing].flatMap(([extId, { note }]) => (isSettled(extId) ? [[extId, note]] : [])),
      );
    },

    /** Returns the faults of an object whose row has this note, when everything is quiet. */
    judge(extId: string, ofRow: string): string[] {
      const note = noteOf(extId);
      const stays = settled.get(extId);
      if (stays !== undefined && note !== stays)
        return [`guarantee 4: '${stays}' was entered in ${extId} after the last write, and is '${note}'`];
      if (note === ofRow) return [];
      const before = entered.get(extId)?.get(note ?? '');
      if (!before)
        return [
          `guarantee 4: ${extId} has the note '${note}'; its row says '${ofRow}', and nobody entered it`,
        ];
      return before.includes(ofRow)
        ? []
        : [`guarantee 4: ${extId} keeps '${note}', and its row says '${ofRow}', which was never written`];
    },
  };
}
