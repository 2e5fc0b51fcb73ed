// JSON lines for machines, one readable line for a terminal. Messages are constant; facts are fields.
// Logs go to standard error, so that a command's own output can be piped.
import { pino, type DestinationStream, type Logger as PinoLogger } from 'pino';

export type Logger = PinoLogger;

/** Field names that never reach a log line, wherever they stand. The last guard, not the first. */
const SECRET_FIELDS = [
  ...['authorization', 'apiKey', 'api.key', 'token', 'httpToken', 'password'],
  ...['connectionString', 'databaseUrl', 'mirrorUrl', 'stateUrl', 'redisUrl'],
];

/** `output`: standard error unless given; for lines of JSON only. */
export async function createLogger(
  level: string,
  isTerminal: boolean,
  output?: DestinationStream,
): Promise<Logger> {
  const redact = {
    paths: SECRET_FIELDS.flatMap((field) => [field, `*.${field}`, `*.*.${field}`]),
    censor: '[secret]',
  };
  const options = { level, redact, base: null };
  if (!isTerminal) {
    return pino(
      { ...options, timestamp: pino.stdTimeFunctions.isoTime },
      output ?? pino.destination({ dest: 2, sync: true }),
    );
  }
  const { default: pretty } = await import('pino-pretty');
  return pino(
    options,
    pretty({ destination: 2, sync: true, translateTime: 'SYS:HH:MM:ss', ignore: 'pid,hostname' }),
  );
}
