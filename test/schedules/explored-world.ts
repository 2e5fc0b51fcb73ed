// Everything that the schedules of one scenario share: a database, the service, and the clients of each actor. Each
// schedule has streams, rows, keys and external ids of its own in it.
import { pino } from 'pino';
import postgres from 'postgres';
import { createDestination, type Destination } from '../../src/destination/destination.js';
import { createLimiter, type SlotStore } from '../../src/destination/quota/limiter.js';
import { createMirror, type Mirror } from '../../src/mirror/mirror.js';
import { openState, type State } from '../../src/state/database.js';
import { createDatabase } from '../support/services.js';
import type { Actor } from './actor.js';
import { startSteppedService } from './service.js';

/** Always grants: the tests of the quota are elsewhere. */
const FREE: SlotStore = {
  take: async () => ({ grants: [{ token: 'free', waitMs: 0 }] }),
  withdraw: async () => undefined,
  release: async () => undefined,
  throttled: async () => undefined,
  usage: async () => {
    throw new Error('nothing is throttled here');
  },
};

/** Longer than a schedule takes on any machine: a claim that is renewed meanwhile would be a step more. */
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
    /** For a room in this database. */
    newName: () => `w${++rooms}`,
    /** Clients that no scheduler stands in front of. */
    plain,

    /** The clients of the actor of this name. */
    clientsOf(name: string): { state: State; destination: Destination } {
      const state = states.get(name) ?? openState({ url: database.url, connections: 3, duty: name });
      const destination = destinations.get(name) ?? openDestination(`/${name}/v1`);
      states.set(name, state);
      destinations.set(name, destination);
      return { state, destination };
    },

    /** A mirror for one process: its connections are few, and one that was killed keeps them. */
    openMirror(): Mirror {
      const opened = idleMirrors.pop() ?? createMirror({ url: database.url });
      mirrors.push(opened);
      return opened;
    },
    /** The mirrors of processes that have ended serve the next schedule: a connection costs 25 ms of processor time. */
    keepMirrors: () => void idleMirrors.push(...mirrors.splice(0)),
    /** Ends what the processes of a schedule read. Connections to the service whose requests never get an answer serve no other. */
    async closeMirrors(): Promise<void> {
      const opened = [...mirrors.splice(0), ...destinations.values()];
      destinations.clear();
      await Promise.all(opened.map((one) => one.close()));
    },

    /** Whether a session of this actor waits for a lock; of an event, one that no actor has. */
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
