// The clients of an actor, with the scheduler in between. State, mirror and service are real, and each call of them is a step
// of the actor.
import type { Destination } from '../../src/destination/destination.js';
import type { Mirror } from '../../src/mirror/mirror.js';
import type { State } from '../../src/state/database.js';
import type { Actor, Step } from './actor.js';

type Work = (...given: unknown[]) => unknown;
interface Session {
  prepareQuery(query: { sql: string }, ...rest: unknown[]): { execute(values?: unknown): Promise<unknown> };
}
interface Queries {
  session: Session;
  _: { session: Session };
  transaction(work: (tx: Queries) => Promise<unknown>, config?: unknown): Promise<unknown>;
}

/**
 * The state, of which each statement outside a transaction, and each transaction as a whole, is a step. `isAlone`: no other
 * actor works the same run.
 */
export function stateOf(actor: Actor, state: State, isAlone: boolean): State {
  const all = state.db as unknown as Queries;
  const session = Object.create(all._.session) as Session;
  session.prepareQuery = (query, ...rest) => {
    const prepared = all._.session.prepareQuery(query, ...rest);
    const execute = prepared.execute.bind(prepared);
    prepared.execute = (values) => actor.step(stepOf(query.sql, isAlone), () => execute(values));
    return prepared;
  };
  const db = Object.assign(Object.create(all) as Queries, { session, _: { ...all._, session } });
  db.transaction = (work, config) => {
    const step = { label: 'transaction' };
    return actor.step(step, () =>
      all.transaction((tx) => {
        noteStatements(tx, (label) => (step.label += `, ${label}`));
        return work(tx);
      }, config),
    );
  };
  return { ...state, db: db as unknown as State['db'] };
}

function noteStatements(tx: Queries, note: (label: string) => void): void {
  const { session } = tx._;
  const prepareQuery = session.prepareQuery.bind(session);
  session.prepareQuery = (query, ...rest) => {
    note(labelOf(query.sql));
    return prepareQuery(query, ...rest);
  };
}

/** Tables that only the workers of a run observe. */
const OF_A_RUN = new Set(['runs', 'batches', 'changes']);

function stepOf(statement: string, isAlone: boolean): Step {
  const label = labelOf(statement);
  const [, ...tables] = label.split(' ');
  return { label, isLocal: isAlone && tables.every((table) => OF_A_RUN.has(table)) };
}

/** Returns the verb and the tables of a statement. */
function labelOf(statement: string): string {
  const [verb = ''] = /insert|update|delete|select/i.exec(statement) ?? [];
  const tables = [...statement.matchAll(/"?slotsync"?\."?(\w+)"?/g)].map(([, table = '']) => table);
  return [verb.toLowerCase(), ...new Set(tables)].join(' ');
}

/** Readings that depend only on keys, not on the values of rows. */
const OF_KEYS = new Set(['readExternalIdsOfKeys']);
/** Calls that are no step: they concern the shape of the source, or do not ask the server. */
const NO_READING = new Set(['cursorType', 'checkStream', 'databaseIdentity', 'ping', 'close', 'takeTurn']);

/** Wraps the mirror. Each reading is a step. A reading in blocks has two steps: its beginning, and after its first block. */
export function mirrorOf(actor: Actor, mirror: Mirror, onRead: () => void): Mirror {
  return new Proxy(mirror, {
    get(target, name, receiver) {
      const found: unknown = Reflect.get(target, name, receiver);
      if (typeof found !== 'function' || typeof name !== 'string' || NO_READING.has(name)) return found;
      const read = found as Work;
      if (read.constructor.name === 'AsyncGeneratorFunction')
        return (...given: unknown[]) => inSteps(actor, name, onRead, read.bind(target, ...given));
      return (...given: unknown[]) =>
        actor.step({ label: `mirror.${name}`, isLocal: OF_KEYS.has(name) }, () => {
          onRead();
          return read.apply(target, given);
        });
    },
  });
}

async function* inSteps(actor: Actor, name: string, onRead: () => void, read: Work) {
  const blocks = (read() as AsyncIterable<unknown>)[Symbol.asyncIterator]();
  try {
    let block = await actor.step({ label: `mirror.${name}` }, () => {
      onRead();
      return blocks.next();
    });
    await actor.step({ label: `mirror.${name} has read` }, () => undefined);
    for (; !block.done; block = await blocks.next()) yield block.value;
  } finally {
    await blocks.return?.();
  }
}

/** Wraps the service. Its requests are steps where they arrive. A killed process sends none. */
export function destinationOf(actor: Actor, destination: Destination): Destination {
  return new Proxy(destination, {
    get(target, name, receiver) {
      const found: unknown = Reflect.get(target, name, receiver);
      if (typeof found !== 'function') return found;
      const call = found as Work;
      return (...given: unknown[]) =>
        actor.isKilled() ? new Promise(() => undefined) : call.apply(target, given);
    },
  });
}
