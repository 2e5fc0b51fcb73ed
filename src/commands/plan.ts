import type { Command } from 'commander';
import { selectStreams, type App } from '../app.js';
import { previewStream, secondsAtQuota, type Preview, type Sample } from '../sync/plan/preview.js';
import { common, EXIT, withApp, type CommonOptions } from './command.js';
import { formatDuration, plural, printJson, printLine, table } from '../report/format.js';
import { readLimit, requireSources } from './work-run.js';

/** Taken for the service's latency where it could not be measured. */
const ASSUMED_LATENCY_MS = 100;
/** A token, and the types and fields looked up before the first write. */
const REQUESTS_OF_A_RUN = 3;

export function addPlan(program: Command): void {
  common(program.command('plan'))
    .argument('[streams...]', 'streams to plan (default: all)')
    .option('--limit <records>', 'as if at most so many records were written, and none retired')
    .description('show what sync would do, with samples field by field; writes nothing anywhere')
    .action((names: string[], options: CommonOptions & { limit?: string }) =>
      withApp({ needs: ['mirror', 'state', 'api'], configPath: options.config }, (app) =>
        plan(app, names, options),
      ),
    );
}

async function plan(
  app: App,
  names: readonly string[],
  options: CommonOptions & { limit?: string },
): Promise<number> {
  const room = { records: readLimit(options.limit) ?? Infinity };
  const streams = selectStreams(await app.configuration(), names);
  const state = await app.confirmedState();
  await requireSources(app, streams);
  const mirror = await app.mirror();
  const destination = await app.destination();
  const previews: Preview[] = [];
  for (const stream of streams)
    previews.push(await previewStream({ mirror, state, destination }, stream, { room }));

  const batches = previews.reduce((sum, { requests }) => sum + requests, 0);
  const requests = batches === 0 ? 0 : batches + REQUESTS_OF_A_RUN;
  const latencyMs = destination.meanLatencyMs() ?? ASSUMED_LATENCY_MS;
  const seconds = secondsAtQuota(requests, app.settings.requestsPerSecond, latencyMs);
  const endsAt = new Date(Date.now() + seconds * 1000);
  if (options.json) {
    printJson({ streams: previews, requests, seconds, endsAt });
  } else {
    print(previews);
    const rate = `${app.settings.requestsPerSecond} requests a second and ${Math.round(latencyMs)} ms latency`;
    printLine(
      requests === 0
        ? 'Nothing to send.'
        : `At most ${plural(requests, 'request')}: ${formatDuration(seconds)} at ${rate}, done at ${endsAt.toTimeString().slice(0, 5)} if started now.`,
    );
  }
  if (previews.some(({ error }) => error)) return EXIT.failed;
  return previews.some(({ holds }) => Object.keys(holds).length > 0) ? EXIT.held : EXIT.done;
}

function print(previews: readonly Preview[]): void {
  for (const preview of previews) {
    for (const sample of preview.samples) printSample(preview, sample);
    if (preview.unread !== undefined)
      printLine(`${preview.stream}: what stands there now could not be read: ${preview.unread}\n`);
  }
  const rows = previews.map(({ stream, counts, requests }) => [
    stream,
    counts.create,
    counts.update,
    counts.retire,
    counts.retry,
    counts.unchanged,
    counts.dead,
    requests,
  ]);
  printLine(
    table(['stream', 'create', 'update', 'retire', 'retry', 'unchanged', 'given up', 'requests'], rows),
  );
  printLine();
  for (const { stream, error, holds, shared } of previews) {
    if (error) printLine(`${stream} cannot be planned: ${error.message}`);
    for (const { reason } of Object.values(holds)) printLine(`${stream}: held: ${reason}`);
    for (const { key, message } of shared.slice(0, 5))
      printLine(`${stream} '${key}' would not be sent: ${message}.`);
    if (shared.length > 5) printLine(`${stream}: ${shared.length - 5} more rows share an external id.`);
  }
}

function printSample({ stream }: Preview, { operation, key, externalId, changes, problem }: Sample): void {
  printLine(`${operation} ${stream} '${key}'${externalId === undefined ? '' : ` → ${externalId}`}`);
  if (problem !== undefined) printLine(`  not possible: ${problem}`);
  else if (changes.length === 0) printLine('  the service already holds exactly this');
  for (const change of changes) printLine(`  ${change.field}: ${show(change.old)} → ${show(change.new)}`);
  printLine();
}

function show(values: readonly string[]): string {
  return values.length === 0 ? '(nothing)' : values.map((value) => JSON.stringify(value)).join(', ');
}
