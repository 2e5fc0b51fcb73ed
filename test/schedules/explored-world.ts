// Everything that the schedules of one scenario share: a database, the service, and the clients of each actor. Each schedule
// has its own streams, rows, keys and external ids in it.
import { pino } from 'pino';
import postgres from 'postgres';
import { createDestination, type Destination } from '../../src/destination/destination.js';
import { createLimiter, type SlotStore } from '../../src/destination/quota/limiter.js';
import { createMirror, type Mirror } from '../../src/mirror/mirror.js';
import { openState, type State } from '../../src/state/database.js';
import { createDatabase } from '../support/services.js';
import type { Actor } from './actor.js';
import { startSteppedService } from './service.js';

/** Grants every slot at once. Other tests test the quota. */
const FREE: SlotStore = {
  take: async () => ({ grants: [{ token: 'free', waitMs: 0 }] }),
  withdraw: async () => undefined,
  release: async () => undefined,
  throttled: async () => undefined,
  usage: async () => {
    throw new Error('nothing is throttled here');
  },
};

/** Longer than any schedule takes, because a claim that is renewed would be another step. */
export const REQUEST_SECONDS = 600;

export const FIELDS = ['thing.name', 'thing.note', 'thing.parent'];

export type ExploredWorld = Awaited<ReturnType<typeof openExploredWorld>>;

export async function openExploredWorld() {
  const database = await createDatabase();
  const sql = postgres(database.url, { max: 3, onnotice: () => undefined });
  for (const table of ['one', 'two']) {
    await sql`
      CREATE TABLE ${sql(table)} (world text, id text, code text, name text, note text, parent text, PRIMARY KEY (world, id))`;
  }
  const service = await startSteppedService({
    types: [{ extId: 'thing' }],
    fields: FIELDS.map((extId) => ({ extId })),
  });
  const log = pino({ level: 'silent' });
  const limiter = createLimiter({ store: FREE });
  const mirror = createMirror({ url: database.url });
  const mirrors: Mirror[] = [];
  const idleMirrors: Mirror[] = [];
  const states = new Map<string, State>();
  const destinations = new Map<string, Destination>();
  const openDestination = (prefix: string) => {
    const api = { baseUrl: service.url, key: 'sandbox-key', organizationId: 'demo', region: 'EU_EES' };
    const requests = {
      requestTimeoutMs: REQUEST_SECONDS * 1000,
      lateWriteSeconds: 30,
      tokenSeconds: 100_000,
      errorBodies: 'json' as const,
      pageSize: 1000,
    };
    // The sandbox answers a find with what it holds, so nobody waits for it.
    return { ...createDestination({ api, limiter, log, prefix, ...requests }), findLagSeconds: 0 };
  };
  let rooms = 0;
  const plain = { state: openState({ url: database.url }), destination: openDestination('/v1') };

  return {
    sql,
    service,
    mirror,
    log,
    /** Returns the name of a new room in this database. */
    newName: () => `w${++rooms}`,
    /** Clients without a scheduler. */
    plain,

    /** Returns the clients of the actor of this name. */
    clientsOf(name: string): { state: State; destination: Destination } {
      const state = states.get(name) ?? openState({ url: database.url, connections: 3, duty: name });
      const destination = destinations.get(name) ?? openDestination(`/${name}/v1`);
      states.set(name, state);
      destinations.set(name, destination);
      return { state, destination };
    },

    /** Opens a mirror for one process. A killed process keeps its few connections. */
    openMirror(): Mirror {
      const opened = idleMirrors.pop() ?? createMirror({ url: database.url });
      mirrors.push(opened);
      return opened;
    },
    /** Keeps the mirrors of ended processes for the next schedule, because a connection costs 25 ms of processor time. */
    keepMirrors: () => void idleMirrors.push(...mirrors.splice(0)),
    /** Closes the mirrors and the destinations of a schedule, whose requests may never get an answer. */
    async closeMirrors(): Promise<void> {
      const opened = [...mirrors.splice(0), ...destinations.values()];
      destinations.clear();
      await Promise.all(opened.map((one) => one.close()));
    },

    /** Returns true if a session of this actor waits for a lock. For an event: a session that belongs to no actor. */
    async isBlocked({ name, isEvent }: Actor): Promise<boolean> {
      const waiting = await sql`
        SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
          AND (application_name = ${`slotsync ${name}`} OR ${isEvent} AND application_name !~ '^slotsync [A-Z]$')`;
      return waiting.length > 0;
    },

    async close(): Promise<void> {
      for (const destination of [plain.destination, ...destinations.values()]) await destination.close();
      for (const state of [plain.state, ...states.values()]) await state.close();
      await limiter.close();
      for (const opened of [mirror, ...idleMirrors]) await opened.close();
      await sql.end({ timeout: 1 });
      await service.close();
      await database.drop();
    },
  };
}
