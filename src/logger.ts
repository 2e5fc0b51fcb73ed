// JSON lines for machines, one readable line for a terminal. Messages are constant; facts are fields.
// Logs go to standard error, so that a command's own output can be piped.
import { pino, type Logger as PinoLogger } from 'pino';
import { visible, visibleWhenDecoded } from './visible-text.js';

export type Logger = PinoLogger;

/** Field names that never reach a log line, wherever they stand. The last guard, not the first. */
const SECRET_FIELDS = ['authorization', 'apiKey', 'token', 'password', 'connectionString', 'databaseUrl'];

/** `dest`: a file descriptor or a path. */
export async function createLogger(
  level: string,
  isTerminal: boolean,
  dest: number | string = 2,
): Promise<Logger> {
  const redact = {
    paths: SECRET_FIELDS.flatMap((field) => [field, `*.${field}`, `*.*.${field}`]),
    censor: '[secret]',
  };
  const options = { level, redact, base: null };
  if (!isTerminal) {
    return pino(
      { ...options, hooks: { streamWrite: visible }, timestamp: pino.stdTimeFunctions.isoTime },
      pino.destination({ dest, sync: true }),
    );
  }
  const { default: pretty } = await import('pino-pretty');
  return pino(
    { ...options, hooks: { streamWrite: visibleWhenDecoded } },
    pretty({ destination: dest, sync: true, translateTime: 'SYS:HH:MM:ss', ignore: 'pid,hostname' }),
  );
}
