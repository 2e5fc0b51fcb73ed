// Maps every row of a stream without sending anything. Reports the rows that could not be sent, grouped by reason.
// Reads mirror and state, in constant memory.
import type { Mirror } from '../../mirror/mirror.js';
import type { State } from '../../state/database.js';
import { isShortenedKey, MAX_ID_BYTES } from '../../streams/local-key.js';
import type { Stream } from '../../streams/stream.js';
import { foreseeIds } from '../identity/changed-ids.js';
import { readKeys, type KeyFaults } from '../identity/read-keys.js';
import { renderWithParents } from '../object/render.js';

export interface RowFault {
  /** Path in the configuration, followed by the reason why the rows cannot be sent. */
  reason: string;
  /** Number of rows that cannot be sent for this reason. */
  count: number;
  /** Keys of some of these rows. */
  keys: string[];
}

export interface CheckedRows {
  rows: number;
  /** Reasons why rows cannot be sent, the most frequent first. */
  faults: RowFault[];
}

const NAMED_KEYS = 5;
/** Maximum number of reasons counted for one path, because a function may throw a new text for each row. */
const REASONS_OF_A_PLACE = 10;

type RowDeps = { mirror: Mirror; state: State; streams: ReadonlyMap<string, Stream> };

/** Maps all rows of one stream. Throws errors of mirror and state. */
export async function checkRows(deps: RowDeps, stream: Stream): Promise<CheckedRows> {
  const { mirror } = deps;
  const groups = createGroups();
  const shared = await mirror.findSharedExternalIds(stream);
  for (const { externalId, count, keys } of shared)
    groups.add(`${stream.name}.externalId`, `several rows give the external id '${externalId}'`, keys, count);
  const ofKeys: KeyFaults = { nulls: 0, repetitions: 0, repeated: undefined };
  let rows = 0;
  await mirror.takeTurn(async () => {
    for await (const keys of readKeys(mirror.readHashes(stream), ofKeys)) {
      rows += keys.length;
      const short = keys.filter((key) => !isShortenedKey(key));
      for (const key of keys.filter(isShortenedKey))
        groups.add(`${stream.name}.key`, `it is longer than ${MAX_ID_BYTES} bytes`, [key]);
      await checkBlock(deps, stream, short, groups.add);
    }
  });
  const { nulls, repetitions, repeated } = ofKeys;
  if (nulls > 0)
    groups.add(`${stream.name}.key`, 'it is null, and so nothing of the stream is sent', [], nulls);
  if (repeated !== undefined) {
    const reason = 'it is not unique, and so nothing of the stream is sent';
    groups.add(`${stream.name}.key`, reason, [repeated], repetitions);
  }
  return { rows: rows + nulls + repetitions, faults: groups.list() };
}

type Add = ReturnType<typeof createGroups>['add'];

async function checkBlock(deps: RowDeps, stream: Stream, keys: readonly string[], add: Add): Promise<void> {
  const { rows, unreadable } = await deps.mirror.readRows(stream, keys);
  for (const [key, error] of unreadable) add(`${stream.name}.from`, error.message, [key]);
  const rendered = await renderWithParents(deps, stream, rows);
  const ids = new Map([...rendered].flatMap(([key, one]) => ('extId' in one ? [[key, one.extId]] : [])));
  const { problems } = await foreseeIds(deps, stream, [...ids.keys()], async () => ids);
  for (const [key, result] of rendered) {
    const problem = problems.get(key);
    if (problem !== undefined) add(`${stream.name}.externalId`, ID_PROBLEMS[problem.code], [key]);
    else if ('problem' in result) add(result.place, result.problem.slice(result.place.length + 2), [key]);
    else if ('missing' in result) {
      const { fieldId, stream: parent } = result.missing;
      add(`${stream.name}.references['${fieldId}']`, `it refers to a row that ${parent} does not have`, [
        key,
      ]);
    }
  }
}

const ID_PROBLEMS = {
  external_id_changed: 'it is another one than the service accepted',
  external_id_shared: 'a row of another stream has it, too',
};

/** Groups rows by path and reason, with the number of rows and the first keys. */
function createGroups() {
  const places = new Map<string, Map<string, RowFault>>();
  return {
    add(place: string, why: string, keys: readonly string[], count = 1): void {
      const reasons = places.get(place) ?? new Map<string, RowFault>();
      places.set(place, reasons);
      const isKept = reasons.has(why) || reasons.size < REASONS_OF_A_PLACE;
      const text = isKept ? why : 'other reasons';
      const group = reasons.get(text) ?? { reason: `${place}: ${text}`, count: 0, keys: [] };
      reasons.set(text, group);
      group.count += count;
      for (const key of keys.slice(0, NAMED_KEYS - group.keys.length)) group.keys.push(key);
    },
    list: (): RowFault[] =>
      [...places.values()].flatMap((reasons) => [...reasons.values()]).sort((a, b) => b.count - a.count),
  };
}
