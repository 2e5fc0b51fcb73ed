// Freezes in the configuration: periods in which no record of a stream is written.
import { parseTime } from '../time/zoned-time.js';
import type { Fault, ParsedConfig } from './config-schema.js';

export interface Freeze {
  stream: string;
  beginsAt: Date;
  endsAt: Date;
  reason: string;
}

/** Resolves the declared freezes to one freeze per stream and period. `names` lists all streams. */
export function resolveFreezes(
  { freeze, schedule }: Pick<ParsedConfig, 'freeze' | 'schedule'>,
  names: readonly string[],
  faults: Fault[],
): Freeze[] {
  return freeze.flatMap(({ from, to, streams = names, reason }, index) => {
    const path = `freeze.${index}`;
    const [beginsAt, endsAt] = Object.entries({ from, to }).map(([key, text]) => {
      const at = parseTime(text, schedule?.timezone);
      if (at === undefined)
        faults.push({ path: `${path}.${key}`, message: `'${text}' is neither a day nor an ISO time` });
      return at;
    });
    for (const stream of streams.filter((name) => !names.includes(name)))
      faults.push({
        path: `${path}.streams`,
        message: `no stream '${stream}'; there are: ${names.join(', ')}`,
      });
    if (beginsAt === undefined || endsAt === undefined) return [];
    if (endsAt <= beginsAt)
      faults.push({ path: `${path}.to`, message: 'is not after `from`: the freeze ends before it begins' });
    return streams.map((stream) => ({
      stream,
      beginsAt: new Date(beginsAt),
      endsAt: new Date(endsAt),
      reason,
    }));
  });
}
