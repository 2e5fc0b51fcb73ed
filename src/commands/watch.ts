// Screen of `--watch`: reads and draws repeatedly until the operator ends it.
import type { App } from '../app/app.js';
import { messageOf, UsageError } from '../errors/errors.js';
import { formatTime } from '../text/format.js';
import { repeat } from '../process/lifecycle.js';
import { openScreen } from '../render/print.js';
import { canDraw } from '../process/terminal.js';

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
/** Keys that close the screen. Ctrl-C is included, because a terminal in raw mode sends no signal for it. */
const ENDING = ['q', 'Q', '\u0003'];

/** Throws UsageError if a screen cannot be drawn on standard output. */
export function requireScreen({ json }: { json?: boolean | undefined }): void {
  if (json)
    throw new UsageError('--watch draws a screen, and --json prints a document', {
      remedy: 'Leave one of them out. To read the state again and again: slotsync status --json',
    });
  if (!canDraw(process.stdout))
    throw new UsageError('--watch draws a screen, and standard output is no terminal', {
      remedy: 'Leave --watch out, or run it in a terminal.',
    });
}

/** Calls `read` every `everySeconds` and draws the returned lines, until q, Ctrl-C or a signal ends the screen. */
export async function watch(
  app: App,
  read: () => Promise<() => readonly string[]>,
  everySeconds: number,
): Promise<void> {
  const timeZone = await app.timeZone();
  const ended = new AbortController();
  const end = () => ended.abort();
  const { stdin, stdout } = process;
  const screen = openScreen();
  let describe: () => readonly string[] = () => [];
  let last = 'reading the state …';

  function draw(): void {
    screen.draw(describe(), last);
  }
  function onKeys(keys: Buffer): void {
    if (ENDING.some((key) => keys.includes(key))) end();
  }
  const hasKeys = stdin.isTTY;
  if (hasKeys) stdin.setRawMode(true).resume().on('data', onKeys);
  stdout.on('resize', draw);
  SIGNALS.forEach((name) => process.on(name, end));
  try {
    const loop = repeat(
      async () => {
        describe = await read().catch(describeFault);
        last = `${formatTime(new Date(), timeZone)}, read every ${everySeconds} s; q ends it`;
        if (!ended.signal.aborted) draw();
      },
      { everyMs: everySeconds * 1000, signal: ended.signal, onError: end },
    );
    await loop.ended;
  } finally {
    SIGNALS.forEach((name) => process.off(name, end));
    stdout.off('resize', draw);
    if (hasKeys) stdin.off('data', onKeys).pause().setRawMode(false);
    screen.close();
  }
}

/** Shows the error in place of the lines, because the next read may succeed. */
const describeFault = (error: unknown) => () => [`The state cannot be read now: ${messageOf(error)}`];
