import type { App } from '../app/app.js';
import { selectStream, selectStreams } from '../config/config-file.js';
import { openCsvFile, readCsvFile } from '../files/csv-file.js';
import { UsageError } from '../errors/errors.js';
import { requireSources } from '../mirror/require-sources.js';
import { plural, lines } from '../text/format.js';
import { print } from '../render/print.js';
import { createProgress } from '../render/progress.js';
import { actAs, noteAction, toRecords } from '../state/actions.js';
import { unlinkRecords } from '../state/records/link-records.js';
import { applyLinks } from '../sync/match/apply-links.js';
import type { Queries } from '../state/database.js';
import type { MatchDeps } from '../sync/match/compare-type.js';
import { MATCH_COLUMNS, NEEDED_COLUMNS, toCsvRow } from '../sync/match/match-file.js';
import { groupByType, matchStreams, type MatchRequest } from '../sync/match/match-streams.js';
import { createNameCheck } from '../sync/plan/unknown-names.js';
import { DEFAULT_VERIFY_SHARE } from '../streams/config-schema.js';
import { createPace } from '../sync/run/request-pace.js';
import type { CommonOptions, ReasonOption } from './command.js';
import { describeApplied, describeMatches, SAMPLES } from './match-text.js';
import { untilInterrupted } from './signals.js';
import { EXIT } from './exit-code.js';

interface MatchOptions extends CommonOptions, ReasonOption {
  by?: string;
  out?: string;
  apply?: string;
  unlink?: string;
}

export async function match(app: App, names: string[], options: MatchOptions): Promise<number> {
  const { by, out, apply, unlink } = options;
  if (unlink !== undefined) {
    if (by !== undefined || out !== undefined || apply !== undefined)
      throw new UsageError('--unlink takes a stream and keys, and no other option');
    return undoLinks(app, unlink, names, options);
  }
  if (apply === undefined) return compare(app, names, options);
  if (by !== undefined || out !== undefined || names.length > 0)
    throw new UsageError('--apply takes a file, and neither streams nor other options');
  return applyFile(app, apply, options);
}

async function compare(app: App, names: string[], options: MatchOptions): Promise<number> {
  const by = options.by === undefined ? undefined : readFields(options.by);
  const configuration = await app.configuration();
  const chosen = selectStreams(configuration, names);
  const deps = await openDeps(app);
  const request = { names: chosen.map(({ name }) => name), by, samples: SAMPLES };
  const compared = groupByType(deps.streams, request).flatMap((streams) =>
    streams.map(({ stream }) => stream),
  );
  await requireSources(deps.mirror, { streams: compared });
  await createNameCheck(deps.destination).requireKnownNames(compared, { lane: 'verify' });

  const { out } = options;
  const file = out === undefined ? undefined : await openCsvFile(out, MATCH_COLUMNS);
  const matched = await untilInterrupted(async (signal) => {
    const found = await readAll(app, deps, request, file, signal);
    await file?.close();
    return found;
  }, 'Stopped. Nothing was changed.');
  if (!matched) return EXIT.failed;
  const { assignsExternalIds: assignsIds } = deps.destination;
  const described = describeMatches(matched, { names, by: options.by, out, assignsIds });
  print(options, { types: matched, file: out ?? null }, described);
  return EXIT.done;
}

async function readAll(
  app: App,
  deps: MatchDeps,
  request: MatchRequest,
  file: Awaited<ReturnType<typeof openCsvFile>> | undefined,
  signal: AbortSignal,
) {
  const { verify } = await app.configuration();
  const share = verify?.share ?? DEFAULT_VERIFY_SHARE;
  const pace = createPace({ requestsPerSecond: app.settings.requestsPerSecond, share });
  const progress = createProgress('objects');
  try {
    return await matchStreams(
      deps,
      {
        ...request,
        pace: () => pace(signal),
        onRead: (read, total) => progress.update(read, total),
        write: file && ((found) => file.write(found.map(toCsvRow))),
      },
      signal,
    );
  } finally {
    progress.stop();
  }
}

async function applyFile(app: App, name: string, options: MatchOptions): Promise<number> {
  const rows = readCsvFile(name, NEEDED_COLUMNS);
  const { state } = await app.recognized(); // a link is to an object of this destination
  const deps = { ...(await openDeps(app)), state };
  await requireSources(deps.mirror, { streams: [...deps.streams.values()] });
  const actor = await app.actor(options.reason);
  const applied = await applyLinks(deps, rows);
  const linked = applied.linked.map(({ stream, key }) => ({ stream, localKey: key }));
  for (const subject of toRecords(linked)) await noteAction(state.db, actor, 'link', subject);
  print(options, applied, describeApplied(applied));
  return EXIT.done;
}

async function undoLinks(app: App, name: string, keys: string[], options: MatchOptions): Promise<number> {
  const stream = selectStream(await app.configuration(), name);
  if (keys.length === 0)
    throw new UsageError('name the keys whose links are to be undone', {
      remedy: `slotsync match --unlink ${stream.name} <key…>`,
    });
  const { db } = await app.confirmedState();
  const actor = await app.actor(options.reason);
  const undo = (tx: Queries) => unlinkRecords(tx, stream.name, [...new Set(keys)]);
  const undone = await actAs(db, actor, 'unlink', undo, toRecords);
  const found = new Set(undone.map(({ localKey }) => localKey));
  const missing = keys.filter((key) => !found.has(key));
  print(options, { stream: stream.name, unlinked: undone, missing }, [
    ...lines(
      missing.map((key) => `${stream.name} '${key}' has no link.`),
      `${plural(undone.length, 'link')} undone.`,
      undone.length > 0 && `What the next sync does now: slotsync plan ${stream.name}`,
    ),
  ]);
  return missing.length > 0 ? EXIT.failed : EXIT.done;
}

async function openDeps(app: App): Promise<MatchDeps> {
  const { streams } = await app.configuration();
  return {
    state: await app.confirmedState(),
    mirror: await app.mirror(),
    destination: (await app.destination()).patient,
    streams: new Map(streams.map((stream) => [stream.name, stream])),
  };
}

function readFields(text: string): string[] {
  const fields = text.split(',').map((field) => field.trim());
  if (fields.includes(''))
    throw new UsageError(`--by takes field ids separated by commas, not '${text}'`, {
      remedy: "Name fields of the mapping, such as --by 'room.code,room.campus'.",
    });
  return [...new Set(fields)];
}
