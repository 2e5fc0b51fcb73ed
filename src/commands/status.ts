import type { Command } from 'commander';
import type { App } from '../app.js';
import type { QuotaUsage } from '../destination/quota/limiter.js';
import { codeOf } from '../errors.js';
import { readBinding } from '../state/binding.js';
import { countRecords, countUnsettled } from '../state/failures.js';
import { listRuns, listUnfinishedRuns, readProgress, type Run } from '../state/runs.js';
import { common, EXIT, withApp, type CommonOptions } from './command.js';
import { formatNumber, formatTime, plural, printJson, printLine, table } from './print.js';
import { runsTable } from './runs.js';
import { runToJson } from './run-report.js';

const STATUSES = ['synced', 'retired', 'deferred', 'failed', 'dead', 'pending'] as const;

export function addStatus(program: Command): void {
  common(program.command('status'))
    .description('what is synced, what is under way, what waits and why; from the state alone')
    .action((options: CommonOptions) =>
      withApp({ needs: ['state'] }, async (app) => {
        const state = await app.state();
        const binding = await readBinding(state);
        const counts = await countRecords(state.db);
        const unfinished = await Promise.all(
          (await listUnfinishedRuns(state.db)).map(async (run) => ({
            run,
            progress: await readProgress(state.db, run.id),
          })),
        );
        const latest = await listRuns(state.db, 5);
        const unsettled = await countUnsettled(state.db);
        const quota = binding ? await readQuota(app, binding) : undefined;
        if (options.json) {
          printJson({
            destination: binding ?? null,
            records: counts,
            unfinished,
            runs: latest.map(runToJson),
            unsettled,
            quota,
          });
          return EXIT.done;
        }
        if (!binding) printLine('Not bound to a service yet: the first sync does that.');
        else
          printLine(
            `Organization ${binding.organizationId} at ${binding.baseUrl}, since ${formatTime(binding.boundAt)}.`,
          );
        printLine();
        const streams = [...new Set(counts.map(({ stream }) => stream))];
        if (streams.length > 0) {
          const rows = streams.map((stream) => [
            stream,
            ...STATUSES.map(
              (status) => counts.find((row) => row.stream === stream && row.status === status)?.count ?? 0,
            ),
          ]);
          printLine(table(['records', ...STATUSES], rows));
          printLine();
        }
        for (const { run, progress } of unfinished) {
          printLine(
            `Under way: run ${run.id} (${run.kind}, ${run.status}): ${formatNumber(progress.done)} of ${plural(progress.total, 'record')}.`,
          );
        }
        for (const { runId, stream, reason } of presentHolds(latest)) {
          printLine(`Held in run ${runId}: ${stream}: ${reason}\n`);
        }
        if (quota) printLine(`${describeQuota(quota)}\n`);
        if (latest.length > 0) printLine(`${runsTable(latest)}\n`);
        printLine(
          unsettled === 0
            ? 'Every record is at the service as it was last read.'
            : `${plural(unsettled, 'record')} not at the service as the mirror has them: slotsync failures`,
        );
        return EXIT.done;
      }),
    );
}

/** A hold stands until a later run has looked at its stream again. */
function presentHolds(latest: readonly Run[]): { runId: number; stream: string; reason: string }[] {
  const finished = latest.filter(({ finishedAt }) => finishedAt !== null);
  const streams = [...new Set(finished.flatMap((run) => run.streams))];
  return streams.flatMap((stream) => {
    const run = finished.find((candidate) => candidate.plan[stream] !== undefined);
    const reason = run?.holds[stream];
    return run && reason !== undefined ? [{ runId: run.id, stream, reason }] : [];
  });
}

/** The quota's use now, or why it cannot be told. */
async function readQuota(
  app: App,
  owner: Parameters<App['quotaUsage']>[0],
): Promise<QuotaUsage | { unknown: string }> {
  try {
    return await app.quotaUsage(owner);
  } catch (error) {
    return { unknown: codeOf(error) };
  }
}

function describeQuota(quota: QuotaUsage | { unknown: string }): string {
  if ('unknown' in quota)
    return `Quota: its store does not answer (${quota.unknown}); nothing is sent meanwhile.`;
  const { allowed, rate, held, cooling, free, granted, throttled, waiting, foreign } = quota;
  const lanes = Object.entries(waiting).filter(([, count]) => count > 0);
  const line =
    lanes.length === 0
      ? 'nobody waits'
      : lanes.map(([lane, count]) => `${count} waiting in ${lane}`).join(', ');
  const others = foreign > 0 ? `; others seem to use ${foreign} of ${rate} requests a second` : '';
  return [
    `Quota: ${allowed} of ${rate} requests a second; ${held} on the wire, ${cooling} in the second after, ${free} free; ${line}.`,
    `  ${formatNumber(granted)} granted, ${formatNumber(throttled)} refused by the service (429)${others}.`,
  ].join('\n');
}
