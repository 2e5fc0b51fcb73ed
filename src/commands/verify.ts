import type { App } from '../app/app.js';
import { selectStreams } from '../config/config-file.js';
import { openCsvFile } from '../files/csv-file.js';
import { UsageError } from '../errors/errors.js';
import { adoptDocument, MOST_DRIFTING, verifyDocument } from '../documents/drift.js';
import { printDocument } from '../render/print-document.js';
import { createProgress } from '../render/progress.js';
import { listDriftSeenBy, type DriftRow } from '../state/drift.js';
import { noteAction } from '../state/actions.js';
import { readClock, type State } from '../state/database.js';
import type { Stream } from '../streams/stream.js';
import { adopt, countRepairable, verify, type VerifyDeps, type VerifyResult } from '../sync/verify/verify.js';
import { type ReasonOption, EXIT } from './command.js';
import { untilInterrupted } from './signals.js';
import { startAndWork, type RunOptions } from './work-run.js';

interface VerifyOptions extends RunOptions, ReasonOption {
  sample?: number;
  extras?: boolean;
  repair?: boolean;
  adopt?: boolean;
  out?: string;
}

const MAX_DRIFTING_AS_JSON = 10_000;
const COLUMNS = ['stream', 'key', 'external_id', 'kind', 'field', 'here', 'there', 'seen_at'];
const ROWS_AT_ONCE = 1000;

export async function verifyObjects(app: App, names: string[], options: VerifyOptions): Promise<number> {
  refuseTogether(options);
  const streams = selectStreams(await app.configuration(), names);
  const deps = await app.verifying('command');
  await deps.mirror.requireSources(streams);
  if (options.adopt) return adoptObjects(app, deps, streams, options);

  const { sample, extras = false, repair = false, json = false } = options;
  // Opens the file first, so that a file error is reported before any object is read.
  const file = options.out === undefined ? undefined : await openCsvFile(options.out, COLUMNS);
  const startedAt = performance.now();
  const verifiedSince = (await readClock(deps.state.db)).toISOString();
  const request = { streams, sample, extras };
  const result = await interruptibly(deps, (given, signal) => verify(given, request, signal));
  if (!result) return EXIT.failed;
  const { state } = deps;
  if (file) await writeDrift(state, result.runId, file);
  const limit = json ? MAX_DRIFTING_AS_JSON : MOST_DRIFTING;
  const isAnySaid = result.drifting + result.storedOtherwise + result.kept + (extras ? result.extra : 0) > 0;
  const drift = isAnySaid ? await listDriftSeenBy(state.db, result.runId, { limit }) : [];
  const seconds = (performance.now() - startedAt) / 1000;
  const document = { ...result, drift };
  const { lead = [], sections } = verifyDocument(result, drift, { seconds, names, sample, extras, repair });
  const written = options.out === undefined ? [] : [`Written to ${options.out}.`];
  const isRepairable = ({ name }: Stream) =>
    result.streams.some((one) => one.stream === name && countRepairable(one) > 0);
  const repairable = repair ? streams.filter(isRepairable) : [];
  if (!json || repairable.length === 0)
    printDocument(
      { sections, lead: [...lead, ...written] },
      { json, timeZone: await app.timeZone() },
      document,
    );
  const code = result.drifting + result.notComparedAgain === 0 ? EXIT.done : EXIT.failed;
  if (repairable.length === 0) return code;

  const range = sample === undefined ? undefined : { verified: result.runId, verifiedSince };
  const repairRequest = { kind: 'repair', lane: 'verify', range } as const;
  const actor = await app.actor(options.reason);
  const subject = repairable.map(({ name }) => name).join(', ');
  const work = {
    resumeCommand: 'slotsync verify --repair',
    extraJson: json ? { verify: document } : {},
    onStarted: (runId: number) => noteAction(state.db, actor, 'repair', { runId, subject }),
  };
  const repaired = await startAndWork(app, repairable, repairRequest, options, work);
  return repaired === EXIT.done && isAnyLeft(result) ? EXIT.failed : repaired;
}

/** Returns true if the verify found drift that a repair does not send. */
const isAnyLeft = ({ streams, drifting }: VerifyResult) =>
  drifting > streams.reduce((sum, one) => sum + countRepairable(one), 0);

function refuseTogether({ adopt: adopts, repair, sample, extras, out, detach, reason }: VerifyOptions): void {
  const others = Object.entries({ repair, sample, extras, out, detach });
  const [other] = others.find(([, given]) => given !== undefined) ?? [];
  if (adopts && other !== undefined)
    throw new UsageError(`--adopt makes records and compares nothing: leave out --${other}`, {
      remedy: 'slotsync verify --adopt, then slotsync sync, then slotsync verify',
    });
  if (reason !== undefined && !repair) throw new UsageError('--reason is about a repair: add --repair');
  if (detach && !repair) throw new UsageError('--detach is about a repair: add --repair');
}

async function adoptObjects(
  app: App,
  deps: VerifyDeps,
  streams: readonly Stream[],
  options: VerifyOptions,
): Promise<number> {
  const startedAt = performance.now();
  const result = await interruptibly(deps, (given, signal) => adopt(given, streams, signal));
  if (!result) return EXIT.failed;
  const document = adoptDocument(result, (performance.now() - startedAt) / 1000);
  printDocument(document, { json: options.json, timeZone: await app.timeZone() }, result);
  return EXIT.done;
}

/** Calls `work` and shows its progress. Returns undefined if a signal stopped the work. */
async function interruptibly<T>(
  deps: VerifyDeps,
  work: (deps: VerifyDeps, signal: AbortSignal) => Promise<T>,
): Promise<T | undefined> {
  const progress = createProgress('objects');
  return untilInterrupted(
    (signal) => work({ ...deps, onProgress: progress.update }, signal),
    'Stopped. What was seen so far is kept; the same command reads everything again.',
  ).finally(progress.stop);
}

/**
 * Writes a line for each field that differs. An object without field values, for example a missing one, is one line.
 */
async function writeDrift(
  state: State,
  runId: number,
  csv: Awaited<ReturnType<typeof openCsvFile>>,
): Promise<void> {
  for (let after: DriftRow | undefined; ;) {
    const rows = await listDriftSeenBy(state.db, runId, { after, limit: ROWS_AT_ONCE });
    await csv.write(rows.flatMap(toLines));
    after = rows.at(-1);
    if (rows.length < ROWS_AT_ONCE) break;
  }
  await csv.close();
}

function toLines({ stream, localKey, externalId, kind, fields, seenAt }: DriftRow) {
  const row = { stream, key: localKey, external_id: externalId, kind, seen_at: seenAt.toISOString() };
  const differences = Object.entries(fields ?? {});
  if (differences.length === 0) return [row];
  return differences.map(([field, { here, there }]) => ({
    ...row,
    field,
    here: here.join(', '),
    there: there.join(', '),
  }));
}
