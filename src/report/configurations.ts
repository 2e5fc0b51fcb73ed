// What is said of processes with another configuration, and of runs that wait for one.
import { formatDuration, formatTime } from '../format.js';
import type { FormerProcess, WaitingRun } from '../readings/configurations.js';

/** `worker on host, process 12, has another configuration (rooms), loaded … (3 d ago): restart it`. */
export function describeFormer(
  {
    command,
    host,
    pid,
    configurationLoadedAt: at,
    configurationChangedAt: changedAt,
    differing,
  }: FormerProcess,
  { timeZone, now }: { timeZone: string; now: Date },
): string {
  const age = formatDuration(Math.max(0, (now.getTime() - at.getTime()) / 1000));
  const loaded = `loaded ${formatTime(at, timeZone)} (${age} ago)`;
  const what =
    differing.length > 0
      ? `has another configuration (${differing.join(', ')}), ${loaded}`
      : `has the configuration ${loaded}; its files have changed since ${formatTime(changedAt, timeZone)}`;
  return `${command} on ${host}, process ${pid}, ${what}: restart it`;
}

/** Why a run waits, and what to do. */
export function describeWaitingRun({ id, streams, isFormer }: WaitingRun): string {
  const why = `Run ${id} (${streams.join(', ')}) waits: no process at work has its configuration.`;
  return isFormer
    ? `${why} It was changed after the run was started. To replace the run: slotsync cancel ${id}, then slotsync sync`
    : `${why} To have it worked: restart the worker with the present configuration, or slotsync sync`;
}
