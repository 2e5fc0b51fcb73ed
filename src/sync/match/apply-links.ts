// Links rows to objects as an operator has chosen in the file of `slotsync match`. Reads everything again, since the
// file may be outdated. If one line has a fault, nothing is linked.
import type { CsvRow } from '../../files/csv-file.js';
import type { FoundObject, Unreadable } from '../../destination/destination.js';
import { messageOf, UsageError } from '../../errors/errors.js';
import { linkRecords, undoLinks, type NewLink } from '../../state/records/links.js';
import { recordName } from '../../state/records/outcome-types.js';
import { readOwnersByKey } from '../../state/records/read/owners.js';
import { keyOf } from '../../streams/external-id-rule.js';
import type { Stream } from '../../streams/stream.js';
import { findOwners, type Owner } from '../object/compare-objects.js';
import { idsOf } from '../identity/row-ids.js';
import type { MatchDeps } from './match-streams.js';
import { findRepeated, readMatchLines, type LineFault, type WantedLink } from './match-file.js';

export interface AppliedLinks {
  linked: { stream: string; key: string; externalId: string; number: string; assignsId: boolean }[];
  /** Number of lines whose record already has the object. */
  already: number;
  /** Number of lines that are not of class `match` and so link nothing. */
  others: number;
}

/** A line to be linked, whose row and object exist. */
interface FoundLink extends WantedLink {
  object: FoundObject;
  /** External id of the object, or the one that it will get. */
  id: string;
}

/** Number of lines that are checked at once. */
const AT_ONCE = 1000;
/** Maximum number of faults that the error message names. */
const NAMED_FAULTS = 20;
const CONTEXT = { lane: 'verify' } as const;

/** Links all lines of class `match`. If any line has a fault, throws UsageError with the faults and links nothing. */
export async function applyLinks(deps: MatchDeps, rows: readonly CsvRow[]): Promise<AppliedLinks> {
  const { wanted, faults, others } = readMatchLines(rows, [...deps.streams.keys()]);
  const found: FoundLink[] = [];
  let already = 0;
  for (const stream of deps.streams.values()) {
    const lines = wanted.filter((line) => line.stream === stream.name);
    for (let start = 0; start < lines.length; start += AT_ONCE) {
      const checked = await checkLines(deps, stream, lines.slice(start, start + AT_ONCE));
      for (const link of checked.found) found.push(link);
      for (const fault of checked.faults) faults.push(fault);
      already += checked.already;
    }
  }
  for (const fault of findRepeated(found, ({ object }) => `object ${object.id}`)) faults.push(fault);
  refuse(faults);
  const links = found.map(toLink);
  const { linked, refused } = await linkRecords(deps.state, links);
  if (refused.length > 0) {
    // A record was changed meanwhile and could not be linked. All links of the file are removed again.
    const isLinked = new Set(linked.map(recordName));
    await undoLinks(
      deps.state.db,
      links.filter((link) => isLinked.has(recordName(link))),
    );
    const lineOf = ({ link }: { link: NewLink }) =>
      found.find(({ stream, key }) => stream === link.stream && key === link.localKey)?.line ?? 0;
    refuse(refused.map((refusal) => ({ line: lineOf(refusal), message: refusal.reason })));
  }
  return {
    linked: found.map(({ stream, key, id, object }) => ({
      stream,
      key,
      externalId: id,
      number: object.id,
      assignsId: object.extId === undefined,
    })),
    already,
    others,
  };
}

const toLink = ({ stream, key, id, object }: FoundLink): NewLink => ({
  stream,
  localKey: key,
  externalId: id,
  destinationId: object.id,
  assignsId: object.extId === undefined,
  linkedBy: 'match',
  fields: null,
});

function refuse(faults: readonly LineFault[]): void {
  if (faults.length === 0) return;
  // Keeps only the first fault of each line.
  const firstFaults = new Map(faults.toReversed().map((fault) => [fault.line, fault]));
  const ordered = [...firstFaults.values()].toSorted((a, b) => a.line - b.line);
  const more = ordered.length - NAMED_FAULTS;
  throw new UsageError(
    `nothing was linked: ${ordered.length === 1 ? 'a line has a fault' : `${ordered.length} lines have faults`}`,
    {
      faults: [
        ...ordered.slice(0, NAMED_FAULTS).map(({ line, message }) => `line ${line}: ${message}`),
        ...(more > 0 ? [`and ${more} more`] : []),
      ],
      remedy: 'Correct or delete these lines, or write the file again: slotsync match --out',
    },
  );
}

/** Checks the lines of one stream: whether their rows and objects exist and may be linked. */
async function checkLines(
  deps: MatchDeps,
  stream: Stream,
  lines: readonly WantedLink[],
): Promise<{ found: FoundLink[]; faults: LineFault[]; already: number }> {
  const keys = lines.map(({ key }) => key);
  const { rows, unreadable } = await deps.mirror.readRows(stream, keys);
  const ids = await idsOf(deps, stream, rows);
  const owned = await readOwnersByKey(deps.state.db, stream.name, keys);
  const accepted = new Map(
    owned.flatMap((owner) => (owner.objectHash === null ? [] : [[owner.localKey, owner.externalId]])),
  );
  const objectOf = await findNamed(deps, stream, lines);

  const objects = new Map(lines.map((line) => [line, objectOf(line)]));
  const present = [...objects.values()].filter((object) => typeof object === 'object');
  const owners = new Map((await findOwners(deps, present)).map(({ object, owner }) => [object.id, owner]));
  const isUnnamed = (object: FoundObject | string | undefined) =>
    typeof object === 'object' && object.extId === undefined;
  const assigned = lines.flatMap((line) =>
    isUnnamed(objects.get(line)) ? (ids.get(line.key)?.templateId ?? []) : [],
  );
  const taken = await deps.destination.findObjects(assigned, stream.type, CONTEXT);

  /** Checks one line. Returns the link, or a fault as text. Undefined if the record already has the object. */
  const check = (line: WantedLink): FoundLink | string | undefined => {
    const { key } = line;
    const reason = unreadable.get(key);
    if (reason) return messageOf(reason);
    if (!rows.has(key))
      return `there is no row '${key}' in ${stream.name}; a spreadsheet may have changed the key, as 007 to 7`;
    const object = objectOf(line);
    if (typeof object === 'string') return object;
    const { link, id: rowId, templateId } = ids.get(key) ?? {};
    const id = object.extId ?? templateId;
    if (id === undefined) return 'the row has no external id that the object could get';
    const owner = owners.get(object.id);
    const isOwn = owner?.stream.name === stream.name && owner.key === key;
    // If a link was removed earlier, the record still owns the object although its row has another external id.
    if ((isOwn && rowId === object.extId) || link?.destinationId === object.id) return undefined;
    if (owner && !isOwn) return describeOwner(owner, { ...line, object, id });
    if (link)
      return `${stream.name} '${key}' is linked to '${link.externalId}' already; undo that link first: slotsync match --unlink`;
    const acceptedId = accepted.get(key);
    if (acceptedId !== undefined && acceptedId !== id)
      return `${stream.name} '${key}' has the object '${acceptedId}' already`;
    if (object.extId === undefined && !deps.destination.assignsExternalIds)
      return `object ${object.id} has no external id; give it one at the service, or set service.assignExternalIds`;
    if (object.extId === undefined && taken.has(id))
      return `object ${object.id} would get the external id '${id}', which another object has`;
    return { ...line, object, id };
  };
  const result = { found: [] as FoundLink[], faults: [] as LineFault[], already: 0 };
  for (const line of lines) {
    const checked = check(line);
    if (checked === undefined) result.already++;
    else if (typeof checked === 'string') result.faults.push({ line: line.line, message: checked });
    else result.found.push(checked);
  }
  return result;
}

function describeOwner({ stream, key, record, row }: Owner, line: FoundLink): string {
  const name = `object ${line.object.id} ('${line.id}')`;
  if (!record) return `${name} is the object of the row ${stream.name} '${key}', by its template or a link`;
  if (row || stream.name !== line.stream)
    return `${name} is the object of the record ${stream.name} '${key}'`;
  return `${name} is the object of the record ${stream.name} '${key}', whose row is gone; if its key has changed: slotsync rename`;
}

/** Returns a function that returns the object named in a line, or a fault as text. */
async function findNamed(
  { destination }: MatchDeps,
  stream: Stream,
  given: readonly WantedLink[],
): Promise<(line: WantedLink) => FoundObject | string> {
  const toKey = (externalId: string | undefined) => externalId && keyOf(stream.externalId.rule, externalId);
  const lines = given.map((line) => ({ ...line, externalId: toKey(line.externalId) }));
  const numbers = lines.flatMap(({ number }) => number ?? []);
  const extIds = lines.flatMap(({ number, externalId }) => (number === undefined ? (externalId ?? []) : []));
  const unreadable: Unreadable = new Map();
  const byNumber = await destination.findObjectsByNumber(numbers, stream.type, CONTEXT, unreadable);
  const byExtId = await destination.findObjects(extIds, stream.type, CONTEXT);
  return ({ number, externalId }) => {
    const reason = unreadable.get(number ?? '');
    if (reason) return messageOf(reason);
    const object: FoundObject | undefined =
      number === undefined ? byExtId.get(toKey(externalId) ?? '') : byNumber.get(number);
    const name = number === undefined ? `with the external id '${externalId}'` : `with the number ${number}`;
    if (!object) return `there is no object ${name} at the service`;
    if (!stream.objectTypes.has(object.typeId))
      return `the object ${name} is of type ${object.typeId}, and those of ${stream.name} are of type ${[...stream.objectTypes].join(', ')}`;
    if (externalId !== undefined && object.extId !== toKey(externalId))
      return `the object ${name} has ${object.extId === undefined ? 'no external id' : `the external id '${object.extId}'`}, not '${externalId}'`;
    return object;
  };
}
