// The costs of starting the program: `--help` of the built program beside Node alone, in turn.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { table, type Cell } from '../src/render/table.js';
import { median, megabytes, showProgress } from './figures.js';

const RUNS = 10;
const CLI = fileURLToPath(new URL('../dist/cli.js', import.meta.url));
const WAYS = [
  { name: 'node -e 0', args: ['-e', '0'] },
  { name: 'slotsync --help', args: [CLI, '--help'] },
];
/** Loaded before the program; writes what the process has used when it ends to the file descriptor 3. */
const TELL_USAGE = `import { writeSync } from 'node:fs';
process.on('exit', () => writeSync(3, JSON.stringify(process.resourceUsage())));`;

interface Run {
  /** From the start of the process to its end. */
  seconds: number;
  processorSeconds: number;
  peakBytes: number;
}

/** `npm run bench -- start-up [runs]`. Each run is made twice: timed as it is, and once more to ask what it used. */
export async function benchStartUp([runs = String(RUNS)]: readonly string[]): Promise<void> {
  const measured = WAYS.map((): Run[] => []);
  for (let round = -1; round < Number(runs); round++) {
    for (const [way, { args }] of WAYS.entries()) {
      const run = { ...(await timeRun(args)), ...(await askUsage(args)) };
      if (round >= 0) measured[way]?.push(run); // the first of each reads the files
    }
    if (round >= 0) showProgress(round + 1, Number(runs));
  }
  const [bare = []] = measured;
  const ratio = (all: readonly Run[], figure: (run: Run) => number) =>
    (median(all.map(figure)) / median(bare.map(figure))).toFixed(2);
  const lines = measured.map((all, way): Cell[] => {
    const seconds = all.map((run) => run.seconds);
    return [
      WAYS[way]?.name ?? '',
      ...[median(seconds), Math.min(...seconds), Math.max(...seconds)].map((value) => value.toFixed(3)),
      ratio(all, (run) => run.seconds),
      median(all.map((run) => run.processorSeconds)).toFixed(3),
      ratio(all, (run) => run.processorSeconds),
      megabytes(median(all.map((run) => run.peakBytes))),
    ];
  });
  const headings = [
    '',
    'seconds (median)',
    'min',
    'max',
    'ratio',
    'processor, s',
    'ratio',
    'peak memory, MB',
  ];
  process.stdout.write(`Node ${process.version}\n\n${table(headings, lines)}\n`);
}

async function timeRun(args: readonly string[]): Promise<Pick<Run, 'seconds'>> {
  const startedAt = performance.now();
  await runNode(args);
  return { seconds: (performance.now() - startedAt) / 1000 };
}

async function askUsage(args: readonly string[]): Promise<Omit<Run, 'seconds'>> {
  const told = await runNode([`--import=data:text/javascript,${encodeURIComponent(TELL_USAGE)}`, ...args]);
  const { userCPUTime, systemCPUTime, maxRSS } = JSON.parse(told) as NodeJS.ResourceUsage;
  return { processorSeconds: (userCPUTime + systemCPUTime) / 1e6, peakBytes: maxRSS * 1024 };
}

/** Runs Node to its end; returns what was written to the file descriptor 3. */
async function runNode(args: readonly string[]): Promise<string> {
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit', 'pipe'] });
  let told = '';
  child.stdio[3]?.on('data', (text: Buffer) => (told += text.toString()));
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) throw new Error(`node ${args.join(' ')} ended with ${code}`);
  return told;
}
