// Checks what a sync needs before one is started: configuration, state, mirror, sources, credentials, names, and
// assumptions about the service. Writes nothing at the service, unless an operator confirms a write probe.
import pLimit from 'p-limit';
import type { Configuration } from '../../config/config-file.js';
import type { Destination, FoundObject } from '../../destination/destination.js';
import { codeOf, messageWithDetail, SlotsyncError, UsageError } from '../../errors/errors.js';
import { formatDuration, formatMinute, lines, plural } from '../../text/format.js';
import type { CatalogueTable } from '../../mirror/read-catalogue.js';
import type { LoadReading, Mirror } from '../../mirror/mirror.js';
import { type Stream, readsSameLoad } from '../../streams/stream.js';
import { createReader, describeExcess } from '../../mirror/role-rights.js';
import { query, queryOne, readClock, type State } from '../../state/database.js';
import type { HistoryRule } from '../../state/history.js';
import { noteAction, type Actor } from '../../state/actions.js';
import { findExceptions } from '../../state/exceptions.js';
import { readLoad } from '../../state/streams.js';
import { describeLoad, judgeLoad, toLoadFacts } from '../limits/load-age.js';
import { findPooling, refuseTransactionPooling } from '../../connections/postgres-connection.js';
import { recognize } from '../../connections/database-facts.js';
import { readDatabase, readStateFacts } from '../../state/restored-databases.js';
import { isBound } from '../../state/destination-binding.js';
import { readStateRole, requireWriter, type StateRole } from '../../state/state-role.js';
import { readOldestSnapshot } from '../../state/processes.js';
import { readLinksToNumbers } from '../../state/records/links.js';
import { readOwners } from '../../state/records/read/owners.js';
import { keysPerBatch } from '../plan/planned-batches.js';
import { findUnknownNames, findUnknownReservationFields } from '../plan/unknown-names.js';
import { checkRows } from './check-rows.js';
import { findFrozen } from './find-frozen.js';
import { probeAssumptions, UNWRITTEN, type Assumption } from './probe-assumptions.js';
import { probeWrite, type WriteProbe } from './write-probe.js';

export interface Finding {
  what: string;
  /**
   * `fault`: a sync would fail. `contradicted`: an assumption about the service is wrong, but a sync works
   * nevertheless. `warning`: works, but should be changed. `untested`: could not be checked.
   */
  result: 'ok' | 'fault' | 'contradicted' | 'warning' | 'untested';
  text: string;
  remedy?: string;
  code?: string;
  /** Number of affected rows, and the first of their keys. */
  count?: number;
  keys?: readonly string[];
}

/** Question to an operator before a test write. `leftOut`: id of the field that is emptied meanwhile. */
export interface WriteQuestion {
  object: FoundObject;
  leftOut: string | undefined;
}

/** Objects to check. A function opens its connection during the check, so that a failure becomes a finding. */
interface CheckDeps {
  configuration: Configuration;
  confirmedState: () => Promise<State>;
  mirror: Mirror;
  destination: () => Promise<Destination>;
  isQuotaInState: boolean;
  timeZone: () => Promise<string>;
  /** If true, also maps every row of every stream, to find rows that cannot be sent. */
  mapsRows?: boolean | undefined;
  /** Object to write as a test, if the state belongs to this service. `confirm` asks the operator before the write. */
  writeProbe?:
    (WriteProbe & { actor: Actor; confirm: (question: WriteQuestion) => Promise<boolean> }) | undefined;
}

const COMPARED_REMEDY =
  'Every booking would differ from its reservation in this field: correct its name, or leave it out.';
const SOURCES_AT_ONCE = 2;
const LONG_OPEN_SECONDS = 15 * 60;

/** Runs all checks. Yields each result at once. */
export async function* checkAll(deps: CheckDeps): AsyncGenerator<Finding> {
  const { configuration, mirror } = deps;
  const { streams } = configuration;
  const names = streams.map(({ name }) => name).join(', ');
  yield { what: 'configuration', result: 'ok', text: `${plural(streams.length, 'stream')}: ${names}` };

  let stateRole: StateRole | undefined;
  let opened: State | undefined;
  const state = await attempt('state', async () => {
    opened = await deps.confirmedState();
    stateRole = await readStateRole(opened);
    await requireWriter(opened);
    const pooling = await findPooling(opened.url);
    const confirmed = (await isBound(opened.db))
      ? 'the tables exist and belong to this destination'
      : 'the tables exist; the first accepted write binds them to this destination';
    if (pooling === 'transaction' && deps.isQuotaInState) refuseTransactionPooling();
    return pooling === 'none' ? confirmed : `${confirmed}; reached through a pooler in ${pooling} mode`;
  });
  yield* state;
  if (opened) yield* checkSnapshots(opened);
  if (opened) yield* checkHistory(opened.db, configuration);
  const mirrorFindings = await attempt('mirror', async () => {
    const { database, version } = await mirror.ping();
    return `database ${database}, PostgreSQL ${version}`;
  });
  yield* mirrorFindings;
  if (opened && isOk(mirrorFindings)) yield* checkDatabases(opened, mirror);
  if (isOk(mirrorFindings)) {
    yield* checkRole(mirror, configuration, stateRole);
    const sources = await checkSources(mirror, configuration);
    yield* sources;
    if (isOk(sources)) yield* checkLoads(mirror, streams, opened);
    const tables = await mirror.catalogue.readTables().catch(() => []); // for hints alone
    if (isOk(sources)) for (const stream of streams) yield* await checkReading(mirror, stream, tables);
    if (deps.mapsRows && isOk(state) && isOk(sources)) yield* checkAllRows(deps);
    else if (deps.mapsRows)
      yield { what: 'rows', result: 'untested', text: 'not mapped: state or sources have a fault' };
  }

  if (deps.isQuotaInState && !isOk(state)) {
    const text = 'not tested: the quota is counted in the state, which cannot be used';
    yield { what: 'credentials', result: 'untested', text };
  } else {
    const destination = await deps.destination();
    const { writeProbe } = deps;
    const tryWrite =
      writeProbe &&
      (async () => {
        const { db } = opened ?? {};
        if (!db || !isOk(state)) throw new UsageError('nothing is written while the state has a fault');
        const { number } = writeProbe;
        const link = (await readLinksToNumbers(db, [number])).get(number);
        const { externalId = link?.externalId } = writeProbe;
        if (link && link.externalId !== externalId)
          throw new UsageError(
            `object ${number} is linked to ${link.stream} '${link.localKey}', with the external id '${link.externalId}': leave out --external-id`,
          );
        return probeWrite(destination, { number, externalId }, async (object, leftOut) => {
          await requireUnfrozen(db, deps, object.typeId);
          await requireNoException(db, object);
          if (!(await writeProbe.confirm({ object, leftOut })))
            throw new UsageError('it was not confirmed by yes, so nothing was written');
          await noteAction(db, writeProbe.actor, 'probe', { subject: `object ${number}` });
        });
      });
    const recalled = opened && isOk(state) ? await recallWrites(opened.db) : undefined;
    yield* checkService(destination, configuration, tryWrite, recalled);
  }
}

/** Returns the assumptions that only a write tests, with what earlier writes have shown. */
async function recallWrites(db: State['db']): Promise<Assumption[]> {
  const { isAccepted, isProbed } = await queryOne<Record<'isAccepted' | 'isProbed', boolean>>(db)`
    SELECT EXISTS (SELECT FROM slotsync.records WHERE object_hash IS NOT NULL) AS "isAccepted",
      EXISTS (SELECT FROM slotsync.actions WHERE action = 'probe') AS "isProbed"`;
  return UNWRITTEN.map((one) => {
    if (isAccepted && one.name === 'write')
      return { ...one, held: 'yes', found: 'the service has accepted objects' };
    return isProbed ? { ...one, found: 'a write probe was made before: slotsync actions' } : one;
  });
}

/** Throws UsageError if an operator has excepted the object's record from sending. */
async function requireNoException(db: State['db'], { id, extId }: FoundObject): Promise<void> {
  const owners = await readOwners(db, extId === undefined ? [] : [extId]);
  const [exception] = (await findExceptions(db, [...owners.values()])).values();
  if (!exception) return;
  const { stream, localKey } = exception;
  throw new UsageError(
    `object ${id} is that of ${stream} '${localKey}', which an exception leaves as it is, so nothing was written`,
    { remedy: `Name another object. To end the exception: slotsync except ${stream} <key> --end` },
  );
}

/** Throws UsageError if a stream with the object's type is frozen. If no stream has the type, all streams count. */
async function requireUnfrozen(
  db: State['db'],
  { configuration: { streams, freezes }, timeZone }: CheckDeps,
  type: string,
): Promise<void> {
  const ofType = streams.filter(({ objectTypes }) => objectTypes.has(type));
  const names = (ofType.length > 0 ? ofType : streams).map(({ name }) => name);
  const [frozen] = await findFrozen(db, names, freezes);
  if (!frozen) return;
  const { stream, endsAt, reason, isDeclared } = frozen;
  const until = formatMinute(endsAt, await timeZone());
  throw new UsageError(`nothing is written while ${stream} is frozen, until ${until} (${reason})`, {
    remedy: isDeclared
      ? 'Run it again then. The configuration declares this freeze.'
      : `Run it again then. To end the freeze: slotsync unfreeze ${stream}`,
  });
}

/** Warns of a long open transaction, because PostgreSQL cannot clean up the state's tables until it ends. */
export async function* checkSnapshots(
  state: Pick<State, 'db'>,
  openForSeconds = LONG_OPEN_SECONDS,
): AsyncGenerator<Finding> {
  const oldest = await readOldestSnapshot(state, openForSeconds);
  if (!oldest) return;
  const { application, role, pid, openSeconds } = oldest;
  const minutes = Math.floor(openSeconds / 60);
  yield {
    what: 'state',
    result: 'warning',
    text: `${application || 'a program without a name'} (role ${role}, pid ${pid}) has had a transaction open for ${minutes} minutes: until it ends, tables of the state grow`,
    remedy: 'End it where it belongs, or as docs/capacity.md says below "A transaction stays open".',
  };
}

/** Warns if the history still has values of fields, although the configuration no longer stores them. */
export async function* checkHistory(db: State['db'], { history }: HistoryRule): AsyncGenerator<Finding> {
  const [row] = await query(db)`SELECT FROM slotsync.history WHERE field_values IS NOT NULL LIMIT 1`;
  if (history === 'values' || !row) return;
  const text = `the history still has values of fields, and the configuration has history: '${history}'`;
  yield { what: 'history', result: 'warning', text, remedy: 'The next sync deletes them.' };
}

/** Warns if a database was restored or replaced. Reports by which facts this would be recognized. */
export async function* checkDatabases(
  { db }: Pick<State, 'db'>,
  mirror: Pick<Mirror, 'facts'>,
): AsyncGenerator<Finding> {
  for (const [name, seen] of [
    ['state', await readStateFacts(db)],
    ['mirror', await mirror.facts()],
  ] as const) {
    const what = `database of the ${name}`;
    const noted = await readDatabase(db, name);
    const found = noted && recognize(noted, seen);
    const why =
      found?.is === 'other' ? found.why : name === 'state' && noted?.restoredAt && noted.restoredWhy;
    if (why) {
      const remedy =
        name === 'state'
          ? 'slotsync verify --repair'
          : 'The next run of each stream is held. If the data is whole and not older than before: slotsync approve';
      yield { what, result: 'warning', text: `the ${name} ${why}`, remedy };
    }
    const { systemId, timeline, walPosition, databaseOid } = seen;
    const facts = { 'system identifier': systemId, timeline, 'WAL position': walPosition, oid: databaseOid };
    const [known, unknown] = [false, true].map((isNull) =>
      Object.entries(facts).filter(([, value]) => (value === null) === isNull),
    );
    const text = `a restore is recognized by ${known?.map((fact) => fact.join(' ')).join(', ')}`;
    const missing = unknown?.map(([fact]) => fact).join(', ');
    const untold = missing ? `; this role or server does not tell: ${missing}` : '';
    yield { what, result: 'ok', text: `${text}${untold}` };
  }
}

/** Warns if the mirror's role may do more than read. With a read-only role, slotsync certainly writes nothing. */
async function* checkRole(
  mirror: Mirror,
  { streams, reservations }: Configuration,
  stateRole: StateRole | undefined,
): AsyncGenerator<Finding> {
  const what = 'role of the mirror';
  const [rights, server] = [await mirror.roleRights(), await mirror.databaseIdentity()];
  const isStateRole =
    stateRole?.role === rights.role &&
    stateRole.startedAt === server?.startedAt &&
    stateRole.port === server.port;
  const excess = [describeExcess(rights), isStateRole ? 'it is the role of the state' : undefined]
    .filter((clause) => clause !== undefined)
    .join('; ');
  if (excess === '') return yield { what, result: 'ok', text: `${rights.role} may only read` };
  const sources = reservations?.bookings ? [...streams, reservations.bookings] : streams;
  const lookups = sources.flatMap(({ lookups: { tables } }) => [...tables.values()]);
  const loads = streams.flatMap(({ freshness }) =>
    freshness?.query === undefined ? [] : [{ source: { query: freshness.query } }],
  );
  const remedy = `Use a role that may only read (docs/security.md): ${createReader([...sources, ...lookups, ...loads])}`;
  yield { what, result: 'warning', text: `${rights.role} may do more than read: ${excess}`, remedy };
}

/** Reports how old the mirror's load is. Streams that determine the age by the same query are reported together. */
export async function* checkLoads(
  mirror: Pick<Mirror, 'readLoad'>,
  streams: readonly Stream[],
  state: Pick<State, 'db'> | undefined,
): AsyncGenerator<Finding> {
  const asked = streams.filter(({ freshness }) => freshness !== undefined);
  for (const [at, stream] of asked.entries()) {
    const { freshness } = stream;
    if (!freshness || asked.slice(0, at).some((earlier) => readsSameLoad(earlier, stream))) continue;
    const names = asked.filter((other) => readsSameLoad(other, stream)).map(({ name }) => name);
    const what = `load of ${names.join(', ')}`;
    let reading: LoadReading | undefined;
    const findings = await attempt(what, async () => {
      reading = await mirror.readLoad(stream);
      return '';
    });
    if (!reading) yield* findings;
    else {
      const now = state ? await readClock(state.db) : new Date();
      const noted = state && (await readLoad(state.db, stream.name));
      const load = judgeLoad(freshness, reading, { noted, now });
      const facts = toLoadFacts(load);
      const age = load.loadedAt
        ? formatDuration(Math.max(0, (now.getTime() - load.loadedAt.getTime()) / 1000))
        : '';
      const may = `may be ${freshness.maxHours} h old`;
      const older = load.olderThan ? ', and is older than the one before it' : '';
      if (!facts) yield { what, result: 'ok', text: `it is ${age} old, and ${may}${older}` };
      else {
        const why = load.message === null || facts.problem !== 'unreadable' ? '' : `: ${load.message}`;
        const text = `it ${describeLoad(facts)}${why}`;
        const follows =
          freshness.then === 'hold' ? 'A sync holds what it would send.' : 'A sync sends nevertheless.';
        const result = facts.problem === 'unreadable' ? 'fault' : 'warning';
        const isWrong = facts.problem === 'unreadable' || facts.problem === 'future';
        const then = isWrong
          ? 'Correct `freshness`, or what it reads.'
          : 'Load the mirror, then: slotsync sync';
        yield { what, result, text, remedy: `${follows} ${then}`, code: 'source_stale' };
      }
    }
  }
}

async function checkSources(mirror: Mirror, { streams, reservations }: Configuration): Promise<Finding[]> {
  const limit = pLimit(SOURCES_AT_ONCE);
  const checked = streams.map(async (stream) => {
    const faults = await limit(() => mirror.checkStream(stream));
    const policies = stream.source.rowSecurity === 'filtered' ? '; policies may hide rows, as declared' : '';
    return sourceFindings(`source of ${stream.name}`, faults, `every column exists${policies}`);
  });
  const findings = (await Promise.all(checked)).flat();
  if (!reservations) return findings;
  const { bookings } = reservations;
  const faults = bookings ? await mirror.bookings.check(bookings) : [];
  const text = bookings
    ? `every column exists; times without a zone are in ${bookings.timezone}`
    : 'none: reservations of the service are kept, and compared with nothing';
  return [...findings, ...sourceFindings('source of reservations', faults, text)];
}

function sourceFindings(what: string, faults: readonly string[], ok: string): Finding[] {
  if (faults.length === 0) return [{ what, result: 'ok', text: ok }];
  return faults.map((text) => ({ what, result: 'fault', text, code: 'mirror_source' }));
}

/** Reads some rows in the same way as a batch. Returns errors, and warnings about columns that may cause errors. */
async function checkReading(
  mirror: Mirror,
  stream: Stream,
  tables: readonly CatalogueTable[],
): Promise<Finding[]> {
  const what = `source of ${stream.name}`;
  const findings = await attempt(what, async () => {
    await mirror.readRows(stream, await mirror.listSomeKeys(stream, keysPerBatch(stream)));
    return '';
  });
  if (!isOk(findings)) return findings;
  const remedy = 'To look at every row: slotsync check --rows';
  return findRisks(stream, tables).map((text, at) => ({
    what,
    result: 'warning',
    text,
    ...(at === 0 && { remedy }),
  }));
}

/** Returns, from the catalogue, why some rows of a table may be impossible to send. Queries are not in it. */
export function findRisks({ source, key, fields }: Stream, tables: readonly CatalogueTable[]): string[] {
  if ('query' in source) return [];
  const [name, schema] = source.table.toReversed();
  // If no schema is given and several tables have the name, the search path decides, which is unknown here.
  const [table, other] = tables.filter((one) => one.name === name && one.schema === (schema ?? one.schema));
  if (!table || other || table.kind === 'view') return [];
  const { primaryKey = key.concat('none'), uniqueKeys, columns } = table;
  const isUnique = [primaryKey, ...uniqueKeys].some((unique) => unique.every((one) => key.includes(one)));
  const mapped = [...fields.values()].map((from) => (typeof from === 'object' ? from.column : from));
  const json = columns.filter((column) => column.type.startsWith('json') && mapped.includes(column.name));
  return lines(
    !isUnique &&
      `no unique index rules out that the key ${key.join(', ')} repeats or is null, and then nothing is sent`,
    json.map(
      (column) =>
        `column ${column.name} is ${column.type}, and an object in it cannot be sent; map it with a function of the row`,
    ),
  );
}

async function* checkService(
  destination: Destination,
  { streams, reservations }: Configuration,
  tryWrite: (() => Promise<Assumption[]>) | undefined,
  recalled: readonly Assumption[] | undefined,
): AsyncGenerator<Finding> {
  let token = '';
  const credentials = await attempt('credentials', async () => {
    token = await destination.authenticate();
    return 'the service accepts the key';
  });
  yield* credentials;
  if (!isOk(credentials)) return;
  let differing: string[] = [];
  yield* await attempt('types and fields', async () => {
    const context = { lane: 'incremental' } as const;
    const compared = reservations?.rules.fields ?? [];
    differing = await findUnknownReservationFields(destination, compared, context);
    const unknown = await findUnknownNames(destination, streams, context);
    if (unknown.length > 0) throw new UsageError('', { faults: unknown });
    return 'the service knows every name of the streams';
  });
  for (const text of differing)
    yield { what: 'types and fields', result: 'warning', text, remedy: COMPARED_REMEDY };
  let written = recalled;
  if (tryWrite) {
    const findings = await attempt('write probe', async () => {
      written = await tryWrite();
      return 'one object was read, written and read again';
    });
    yield* findings;
  }
  for (const { name, held, found, needed } of await probeAssumptions(destination, token, { written })) {
    const results = { yes: 'ok', no: needed ? 'fault' : 'contradicted', unknown: 'untested' } as const;
    yield { what: `assumed: ${name}`, result: results[held], text: found };
  }
}

const isOk = (findings: readonly Finding[]) => findings.every(({ result }) => result === 'ok');

async function* checkAllRows(deps: CheckDeps): AsyncGenerator<Finding> {
  const { mirror } = deps;
  const streams = new Map(deps.configuration.streams.map((stream) => [stream.name, stream]));
  for (const stream of streams.values()) {
    const what = `rows of ${stream.name}`;
    const faults: Finding[] = [];
    const findings = await attempt(what, async () => {
      const checked = await checkRows({ mirror, state: await deps.confirmedState(), streams }, stream);
      for (const { reason, count, keys } of checked.faults) {
        const [first] = keys;
        const named = first === undefined ? '' : `, such as ${keys.map((key) => `'${key}'`).join(', ')}`;
        const remedy =
          first === undefined ? undefined : `slotsync explain ${stream.name} '${first}' shows one of them.`;
        const fault = { what, result: 'fault', code: 'mapping_failed', count, keys } as const;
        const text = `${count} of ${checked.rows}${named}: ${reason}`;
        faults.push({ ...fault, text, ...(remedy === undefined ? {} : { remedy }) });
      }
      return checked.rows === 1 ? '1 can be sent' : `all ${checked.rows} can be sent`;
    });
    yield* faults.length > 0 ? faults : findings;
  }
}

/** Runs one check. An error that it throws becomes one or more results `fault`. */
async function attempt(what: string, run: () => Promise<string>): Promise<Finding[]> {
  try {
    return [{ what, result: 'ok', text: await run() }];
  } catch (error) {
    const { faults = [] } = error instanceof UsageError ? error : {};
    const remedy = error instanceof SlotsyncError && error.remedy !== '' ? { remedy: error.remedy } : {};
    const fault = { what, result: 'fault', code: codeOf(error), ...remedy } as const;
    const texts = faults.length > 0 ? faults : [messageWithDetail(error)];
    return texts.map((text) => ({ ...fault, text }));
  }
}
