// Concerns about sending: the databases, the store of the quota, and the processes with their configurations.
import { errorEntry } from '../../errors/error-catalogue.js';
import { isStopped, type Process } from '../../state/processes.js';
import { onlyReads } from '../../state/runs/read-runs.js';
import { differingStreams, type Fingerprints } from '../../streams/fingerprints.js';
import { counted, plural, present } from '../../text/format.js';
import { joinTexts, type Text, text } from '../document.js';
import {
  ago,
  earliest,
  type Ground,
  groupBy,
  kind,
  latest,
  linkToRunAtBegin,
  MOST_NAMED,
  nameProcess,
  nameSome,
  remedyOf,
} from './concern.js';

export const PROCESSES = {
  state_read_only: kind({
    severity: 'critical',
    find: ({ whyReadOnly: why }) => why !== null && { facts: { why } },
    short: () => 'state is read-only',
    say: ({ why }) => ({
      status: 'stopped',
      text: 'The state database is read-only: nothing is sent until it can be written',
      details: [
        why === 'standby'
          ? 'The database is a standby. Set STATE_DATABASE_URL to the primary, or promote the standby.'
          : 'default_transaction_read_only is set for the server or the database.',
      ],
    }),
  }),

  state_restored: kind({
    severity: 'critical',
    find: ({ known: { restored } }) =>
      restored && { facts: restored, since: restored.since, commands: ['slotsync verify --repair'] },
    alert: { condition: 'state_restored', after: () => 0 },
    short: () => 'state restored',
    say: ({ since, why }) => ({
      status: 'failed',
      text: 'The state was restored, so it may differ from the service',
      details: [
        text`The state ${why}${since && text`, noticed ${{ minute: since }}`}.`,
        'Changes sent since the backup are unknown. Until a verify, no run counts as succeeded.',
      ],
    }),
  }),

  quota_unavailable: kind({
    severity: 'critical',
    find: ({ quota }) => quota && 'unknown' in quota && { facts: { code: quota.unknown } },
    short: () => 'quota does not answer',
    say: ({ code }) => ({
      status: 'stopped',
      text: `The store of the quota does not answer (${code}): nothing is sent until it does`,
    }),
  }),

  sending_stopped: kind({
    severity: 'critical',
    find: ({ processes }) =>
      groupBy(processes.filter(isStopped), ({ errorCode }) => `sending_stopped ${errorCode}`).map(
        ([id, stopped, { errorCode: code }]) => ({
          id,
          since: earliest(stopped.map(({ stoppedSince }) => stoppedSince)),
          subject: code,
          facts: { code, processes: stopped },
        }),
      ),
    alert: { condition: 'sending_stopped', after: ({ sendingStoppedMinutes }) => sendingStoppedMinutes },
    short: () => 'sending stopped',
    say: ({ code, processes }, { since, now }) => ({
      status: 'stopped',
      text: text`Nothing has been sent since ${since && { minute: since }}: ${code}`,
      details: present<string>(
        `${plural(processes.length, 'process', 'processes')}: ${errorEntry(code).meaning}.`,
        // A worker loop that has ended is not restarted. After any other cause, slotsync retries automatically.
        code !== 'worker_ended' &&
          'slotsync retries with increasing delays, and resumes sending automatically.',
      ),
      named: processes.map(
        (process) =>
          text`${nameProcess(process)}, for ${ago(process.stoppedSince, now)}: ${process.errorMessage}`,
      ),
      next: remedyOf(code),
    }),
  }),

  no_process: kind({
    severity: 'critical',
    find: (ground) => {
      const runIds = findUnworkedRuns(ground);
      return (
        runIds.length > 0 && { facts: { runIds }, since: lastSeen(ground), commands: ['slotsync worker'] }
      );
    },
    short: () => 'no process works',
    say: ({ runIds }) => {
      const more = runIds.length - MOST_NAMED;
      const [are, them] = runIds.length === 1 ? ['is', 'it'] : ['are', 'them'];
      return {
        status: 'stopped',
        text: text`${joinTexts(runIds.slice(0, MOST_NAMED).map(linkToRunAtBegin), ', ')}${more > 0 && ` and ${more} more`} ${are} unfinished, but no process works on ${them}`,
      };
    },
  }),

  /** A schedule is registered, but no worker is alive to follow the schedule. */
  no_worker: kind({
    severity: 'action',
    find: (ground) => {
      const { nightly, schedules, processes } = ground;
      const [next] = present(nightly, schedules).toSorted(
        (a, b) => a.nextDue.getTime() - b.nextDue.getTime(),
      );
      if (!next || processes.some(({ isAlive, command }) => isAlive && command === 'worker')) return false;
      return {
        facts: { nextDue: next.nextDue, streams: next === nightly ? null : next.streams },
        since: lastSeen(ground) ?? next.registeredAt,
        commands: ['slotsync worker'],
      };
    },
    short: () => 'no worker',
    say: ({ nextDue, streams }) => {
      const line = `No worker is running to start the ${streams === null ? 'nightly sync' : `sync of ${nameSome(streams)}`}`;
      return { status: 'stopped', line, text: text`${line}, due next ${{ minute: nextDue }}` };
    },
  }),

  /**
   * A run whose configuration no live process has. `isFormer`: all processes have a newer one, so restarts do not help.
   */
  run_waiting: kind({
    severity: 'action',
    find: (ground) =>
      findConfigurations(ground).waiting.map((run) => ({
        id: `run_waiting ${run.id}`,
        subject: `run ${run.id}`,
        facts: run,
        commands: run.isFormer ? [`slotsync cancel ${run.id}`, 'slotsync sync'] : ['slotsync sync'],
      })),
    short: (all) => plural(all.length, 'waiting run'),
    say: ({ id, streams, isFormer }) => ({
      status: 'paused',
      text: text`${linkToRunAtBegin(id)} (${streams.join(', ')}) waits, because no running process has its configuration`,
      next: isFormer
        ? `The configuration changed after the run was started. To replace the run: slotsync cancel ${id}, then slotsync sync`
        : 'To continue: restart the worker with the current configuration, or run slotsync sync',
    }),
  }),

  /** Live processes of one command that need a restart, because they have an old configuration. */
  configuration_former: kind({
    severity: 'action',
    find: (ground) => {
      const loadedAt = latest(ground.processes.flatMap((process) => process.configurationLoadedAt ?? []));
      const { former } = findConfigurations(ground);
      return groupBy(former, ({ command }) => `configuration_former ${command}`).map(([id, processes]) => ({
        id,
        since: earliest(processes.flatMap((process) => process.configurationChangedAt ?? [])) ?? loadedAt,
        subject: processes[0].command,
        facts: { processes },
      }));
    },
    short: (all) => plural(all.length, 'process to restart', 'processes to restart'),
    say: ({ processes }, { now }) => ({
      status: 'stopped',
      text: counted`${processes.length} process{|es} (${processes[0].command}) {has|have} an old configuration: restart {it|them}`,
      named: processes.map((process) => text`${describeFormer(process, now)}.`),
    }),
  }),

  /** Processes that were killed, are frozen, or cannot reach the state. `isMissed`: runs or records wait for them. */
  process_silent: kind({
    severity: 'notice',
    find: (ground) => {
      const { processes, orphanedClaims, now } = ground;
      const isMissed = (orphanedClaims?.records ?? 0) > 0 || findUnworkedRuns(ground).length > 0;
      const isShown = ({ isAlive, command, seenAt }: Process) =>
        !isAlive &&
        (isMissed || (command === 'worker' && now.getTime() - seenAt.getTime() < SILENT_SHOWN_MS));
      const silent = processes.filter(isShown).toSorted((a, b) => b.seenAt.getTime() - a.seenAt.getTime());
      return silent[0] && { facts: { processes: silent, isMissed }, since: silent[0].seenAt };
    },
    say: ({ processes, isMissed }) => {
      const more = processes.length - MOST_NAMED;
      return {
        status: 'not seen',
        text: counted`${processes.length} {process was|processes were} killed, {is|are} suspended, or cannot reach the state`,
        named: present<Text>(
          processes
            .slice(0, MOST_NAMED)
            .map(
              (process) =>
                text`${isMissed ? 'Not seen since' : 'Last seen'} ${process.seenAt}: ${nameProcess(process)}.`,
            ),
          more > 0 && counted`${more} process{|es} more {was|were} seen before that.`,
        ),
      };
    },
  }),

  claims_orphaned: kind({
    severity: 'notice',
    find: ({ orphanedClaims: facts }) => facts && facts.records > 0 && { facts },
    say: ({ records, until }) => ({
      status: 'pending',
      text: text`${counted`${records} record{|s} {waits|wait} because a dead process had locked {it|them}`}${until && text`, until ${until} at the latest`}`,
    }),
  }),
};

const lastSeen = ({ processes }: Ground) => latest(processes.map(({ seenAt }) => seenAt));

/** Returns the unfinished runs that are not paused, if no process is alive. Otherwise returns an empty list. */
const findUnworkedRuns = ({ unfinished, processes }: Ground): number[] =>
  processes.some(({ isAlive }) => isAlive)
    ? []
    : unfinished.filter(({ pausedAt }) => pausedAt === null).map(({ id }) => id);

/** A process that needs a restart. `differing`: streams that its configuration declares differently now. */
export type FormerProcess = Process & { configurationLoadedAt: Date; differing: readonly string[] };

const configuredOf = (processes: readonly Process[]) =>
  processes.flatMap((one) => {
    const { configuration, fingerprints, configurationLoadedAt } = one;
    if (!one.isAlive || configuration === null || !fingerprints || !configurationLoadedAt) return [];
    return [{ ...one, configuration, configurationLoadedAt, streams: fingerprints }];
  });

/** Returns the streams that two configurations declare differently, or that only one configuration has. */
const compare = (one: Fingerprints, other: Fingerprints) =>
  [...new Set([...differingStreams(one.streams, other), ...differingStreams(other.streams, one)])].toSorted();

/**
 * Returns live processes whose configuration differs from `current`, or whose files have changed since they were
 * loaded. Default of `current`: the configuration that a process loaded last.
 */
export function findFormerProcesses(processes: readonly Process[], current?: Fingerprints): FormerProcess[] {
  const configured = configuredOf(processes);
  const reference =
    current ??
    configured.toSorted((a, b) => b.configurationLoadedAt.getTime() - a.configurationLoadedAt.getTime())[0];
  return configured.flatMap((one) => {
    const differing = reference ? compare(one, reference) : [];
    return differing.length > 0 || one.configurationChangedAt ? [{ ...one, differing }] : [];
  });
}

/** Returns the runs that wait for a process with their configuration, and the processes that need a restart. */
function findConfigurations({ processes, unfinished }: Ground) {
  const configured = configuredOf(processes);
  const former = new Map(findFormerProcesses(processes).map((one) => [one.id, one]));
  const waiting = unfinished.flatMap((run) => {
    const { id, streams, fingerprints, pausedAt, requestedAt } = run;
    const others = configured.map((one) => ({ ...one, differing: differingStreams(fingerprints, one) }));
    const isWorked = others.some(
      ({ configuration, differing }) => configuration === run.configuration || differing.length === 0,
    );
    if (pausedAt || onlyReads(run) || isWorked || others.length === 0) return [];
    const older = others.filter(({ configurationLoadedAt }) => configurationLoadedAt < requestedAt);
    for (const one of older) if (!former.has(one.id)) former.set(one.id, one);
    return [{ id, streams, isFormer: older.length === 0 }];
  });
  return { former: [...former.values()], waiting };
}

/** Example: `worker on host, process 12, has another configuration (rooms), loaded … (3 d ago): restart it`. */
export function describeFormer(process: FormerProcess, now: Date): Text {
  const { configurationLoadedAt: loadedAt, configurationChangedAt: changedAt, differing } = process;
  const loaded = text`loaded ${loadedAt} (${ago(loadedAt, now)} ago)`;
  return differing.length > 0
    ? text`${nameProcess(process)}, has another configuration (${differing.join(', ')}), ${loaded}: restart it`
    : text`${nameProcess(process)}, has the configuration ${loaded}; its files have changed since ${changedAt}: restart it`;
}

/** Time in milliseconds for which a silent worker is shown although no run and no record waits for the worker. */
const SILENT_SHOWN_MS = 24 * 60 * 60_000;
