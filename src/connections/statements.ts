// The statements of a client of postgres.js that are under way, also those that the driver sends itself, such as COMMIT. The
// driver has no list of them. Every statement passes through `handle` when it is sent, and names its client by the function
// that would cancel it.
import { Readable } from 'node:stream';
import type postgres from 'postgres';
import { watchConnection } from './transactions.js';

/** A statement of the driver, as far as it is used here. */
interface Query extends Promise<unknown> {
  /** Null once it was called. */
  canceller: ((query: Query) => Promise<void>) | null;
  executed: boolean;
  /** Not null: it was written to the connection of this server process. */
  state: { pid: number | null } | null;
  string: string;
  handler: () => unknown;
  reject(reason: unknown): void;
  handle(): Promise<void>;
}

interface Client {
  statements: Set<Statement>;
  onEnd: () => void;
}

export interface Statement {
  cancel(): void;
  /** Its text, as the server lists it. */
  text(): string;
  /** The process number that the server, or a pooler, has announced; undefined before it is sent, or when none was announced. */
  pid(): number | undefined;
  isSent(): boolean;
  /** It was sent, and no rows of it that have arrived wait for their consumer. */
  isAwaited(): boolean;
}

const byClient = new WeakMap<object, Client>();
const noted = new WeakSet<object>();

/** The statements of this client that have not ended, from now on. `onEnd` is called after each. */
export function watchStatements(
  client: Pick<postgres.Sql, 'unsafe'>,
  onEnd: () => void = () => undefined,
): ReadonlySet<Statement> {
  const unsent = client.unsafe('') as unknown as Query;
  const queries = Object.getPrototypeOf(unsent) as Query;
  if (!noted.has(queries)) noteSending(queries);
  noted.add(queries);
  const statements = new Set<Statement>();
  if (unsent.canceller) byClient.set(unsent.canceller, { statements, onEnd });
  return statements;
}

function noteSending(queries: Query): void {
  const { handle } = queries;
  queries.handle = function (this: Query) {
    if (!this.executed) note(this, this.canceller ? byClient.get(this.canceller) : undefined);
    return handle.call(this);
  };
}

function note(query: Query, client: Client | undefined): void {
  if (!client) return;
  const { statements, onEnd } = client;
  const noteFailure = watchConnection(query);
  let rows: Readable | undefined;
  const statement: Statement = {
    cancel() {
      // Its own `cancel` leaves a failure to nobody, which ends the process: the server may refuse further connections.
      query.canceller?.(query).catch(() => undefined);
      query.canceller = null;
    },
    text: () => query.string,
    pid: () => query.state?.pid ?? undefined,
    isSent: () => query.state !== null,
    isAwaited: () => query.state !== null && !rows?.readableLength,
  };
  statements.add(statement);
  const forget = (error?: unknown) => {
    noteFailure(error);
    statements.delete(statement);
    onEnd();
  };
  const ended = (result: unknown) => {
    if (!(result instanceof Readable)) return forget();
    rows = result.once('close', () => forget());
  };
  // Its own `then` would send it.
  void Promise.prototype.then.call(query, ended, forget);
}
