// Writes the log: JSON lines for machines, one readable line for a terminal. Messages are constant; facts are fields.
// Logs go to standard error, so that a command's own output can be piped.
import { pino, type DestinationStream, type Logger as PinoLogger } from 'pino';
import { codeOf } from '../errors/errors.js';
import { formatClock, formatTime } from '../text/format.js';
import { coloured, overDrawnLine, type Colour } from './terminal.js';
import { visible, visibleInLine } from '../text/visible-text.js';

export type Logger = PinoLogger;

interface TerminalLines {
  /** Time zone of the shown times. Until it is known, times are shown in the zone of this machine. */
  timeZone?: string | undefined;
  hasColours: boolean;
}

/**
 * Names of fields whose values are redacted in each log line. This is only the last guard: destination/failure-text.ts has
 * already removed keys and tokens from the texts of the service.
 */
const SECRET_FIELDS = ['authorization', 'apiKey', 'token', 'password', 'connectionString', 'databaseUrl'];

/** Creates a logger, by default of JSON lines. `dest`: file descriptor or path. `mixin`: fields of every line. */
export function createLogger(
  level: string,
  terminal: TerminalLines | undefined,
  dest: number | string = 2,
  mixin?: () => object,
): Logger {
  const redact = {
    paths: SECRET_FIELDS.flatMap((field) => [field, `*.${field}`, `*.*.${field}`]),
    censor: '[secret]',
  };
  return pino(
    {
      level,
      redact,
      base: null,
      hooks: { streamWrite: terminal ? (line) => forTerminal(line, terminal) : visible },
      timestamp: pino.stdTimeFunctions.isoTime,
      ...(mixin ? { mixin } : {}),
    },
    openOutput(dest),
  );
}

const logged = new WeakSet<Error>();

/** Logs an error without a code of its own once, with its class and stack frames and those of its causes. */
export function logUnexpected(log: Pick<Logger, 'error'>, error: unknown): void {
  if (codeOf(error) !== 'unexpected' || (error instanceof Error && logged.has(error))) return;
  const chain: object[] = [];
  for (let next = error; next instanceof Error && chain.length < 10; next = next.cause) {
    logged.add(next);
    const { message, stack = '' } = next; // a message may quote a value of a row, or a secret: it is left out
    const frames = stack.slice(stack.indexOf(message) + message.length).split('\n');
    const at = frames.flatMap((line) => (line.startsWith('    at ') ? line.trim() : []));
    chain.push({ name: next.constructor.name, code: codeOf(next), at });
  }
  log.error({ chain }, 'unexpected error: please report these lines');
}

/** Opens the output. A line that cannot be written, for example on a full disk, is lost. Later lines are tried. */
function openOutput(dest: number | string): DestinationStream {
  const open = () => pino.destination({ dest, sync: true }).once('error', () => (output = open()));
  let output = open();
  return { write: (line) => void output.write(line) };
}

const COLOURS: Readonly<Record<string, Colour>> = { warn: 'yellow', error: 'red', fatal: 'red' };

/** `03:12:45 CET warn throttled: other programs may use part of the quota  path=/objects retryAfterMs=1000` */
function forTerminal(line: string, { timeZone, hasColours }: TerminalLines): string {
  const { level, time, msg = '', ...fields } = JSON.parse(line) as { msg?: string } & Record<string, unknown>;
  const name = pino.levels.labels[Number(level)] ?? String(level);
  const facts = Object.entries(fields).map(([field, value]) => `${field}=${formatFact(value, timeZone)}`);
  const clock = formatClock(new Date(String(time)), timeZone);
  const text = [clock, name, msg, ...facts];
  const [shownClock, shownName, shownMessage, ...shown] = text.map(visibleInLine);
  const paint = (part = '', colour?: Colour) => (hasColours && colour ? coloured(part, colour) : part);
  const rest = shown.length === 0 ? '' : `  ${paint(shown.join(' '), 'dim')}`;
  return overDrawnLine(
    `${paint(shownClock, 'dim')} ${paint(shownName, COLOURS[name])} ${shownMessage}${rest}\n`,
  );
}

/** Formats the value of a field: a word as it is, a time in the zone, everything else as JSON. */
function formatFact(value: unknown, timeZone: string | undefined): string {
  if (timeZone !== undefined && /^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(String(value)))
    return JSON.stringify(formatTime(new Date(String(value)), timeZone));
  return typeof value === 'string' && /^[^\s"=\\]+$/.test(value) ? value : JSON.stringify(value);
}
