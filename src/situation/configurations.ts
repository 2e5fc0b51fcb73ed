// Processes at work that have another configuration than they should, and runs that wait for a configuration that none of
// them has.
import type { Process } from '../state/processes.js';
import { onlyReads, type Run } from '../state/runs/read-runs.js';
import { differingStreams, type Fingerprints } from '../streams/fingerprints.js';

/** A process that is to be restarted. */
export interface FormerProcess extends Process {
  configurationLoadedAt: Date;
  /** The streams that it declares otherwise than what it is compared with. */
  differing: readonly string[];
}

/** A run that no process at work may work. */
export interface WaitingRun {
  id: number;
  streams: readonly string[];
  /** It was started before these processes loaded their configuration: a restart does not help. */
  isFormer: boolean;
}

type Configured = Process & Fingerprints & { configurationLoadedAt: Date };

const configuredOf = (processes: readonly Process[]): Configured[] =>
  processes.flatMap((one) => {
    const { configuration, fingerprints, configurationLoadedAt } = one;
    if (!one.isAlive || configuration === null || !fingerprints || !configurationLoadedAt) return [];
    return [{ ...one, configuration, configurationLoadedAt, streams: fingerprints }];
  });

/** Streams that two configurations declare differently, or that only one of them has. */
const compare = (one: Fingerprints, other: Fingerprints) =>
  [...new Set([...differingStreams(one.streams, other), ...differingStreams(other.streams, one)])].toSorted();

/**
 * Processes at work with another configuration than `current`, or than the one that was loaded last, and those whose files
 * have changed since they were loaded.
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

/** The unfinished runs that wait; and the processes to be restarted, also those that keep such a run waiting. */
export function findConfigurations(processes: readonly Process[], unfinished: readonly Run[]) {
  const configured = configuredOf(processes);
  const former = new Map(findFormerProcesses(processes).map((one) => [one.id, one]));
  const waiting: WaitingRun[] = [];
  for (const run of unfinished) {
    const { id, streams, fingerprints, pausedAt, requestedAt } = run;
    const others = configured.map((one) => ({ ...one, differing: differingStreams(fingerprints, one) }));
    const isWorked = others.some(
      ({ configuration, differing }) => configuration === run.configuration || differing.length === 0,
    );
    if (pausedAt || onlyReads(run) || isWorked || others.length === 0) continue;
    const older = others.filter(({ configurationLoadedAt }) => configurationLoadedAt < requestedAt);
    waiting.push({ id, streams, isFormer: older.length === 0 });
    for (const one of older) if (!former.has(one.id)) former.set(one.id, one);
  }
  return { former: [...former.values()], waiting };
}
