// A mirror that does not keep still, and what the service must hold of it in the end: rooms and courses, whose external
// ids follow from their keys.
import type postgres from 'postgres';
import { createRandom } from '../../src/sandbox/request-steps.js';
import type { SandboxObject } from '../../src/sandbox/object-store.js';
import type { SandboxSchema } from '../../src/sandbox/schema.js';
import { messageOf } from '../../src/errors/errors.js';

/** The parts of a world: tables, their configuration, and the objects they ask for. */
export interface ChaosMirror {
  /** The text of `sync.config.ts`, with REQUEST_TIMEOUT_MS where the world's goes. */
  configuration: string;
  schema: SandboxSchema;
  fill(sql: postgres.Sql): Promise<void>;
  /** The objects the service must hold: by external id, the object that the mirror's row maps to. */
  readExpected(sql: postgres.Sql): Promise<Map<string, Expected>>;
}

/** An object as far as it must be equal, and whose it is: its id is the service's business. */
export type Expected = Content & {
  /** Stream and key of its row. */
  row: string;
};

type Content = Pick<SandboxObject, 'typeId' | 'active' | 'fields'>;

const CONFIGURATION = `
import { defineConfig } from 'slotsync';
export default defineConfig({
  service: { requestTimeoutMs: REQUEST_TIMEOUT_MS, lateWriteSeconds: 3 },
  streams: {
    courses: {
      from: 'courses', key: 'id', type: 'course', externalId: 'course_{id}', batchSize: BATCH_SIZE,
      fields: { 'course.name': 'name', 'course.version': 'version' },
      references: { 'course.room': { stream: 'rooms', key: 'room' } },
      retire: 'deactivate',
    },
    rooms: {
      from: 'rooms', key: 'code', type: 'room', externalId: 'room_{code}', batchSize: BATCH_SIZE, owns: 'object',
      fields: { 'room.name': 'name', 'room.version': 'version' },
      retire: 'deactivate',
    },
  },
});
`;

const SCHEMA = {
  types: [{ extId: 'room' }, { extId: 'course' }],
  fields: [
    { extId: 'room.name' },
    { extId: 'room.version' },
    { extId: 'course.name' },
    { extId: 'course.version' },
    { extId: 'course.room', reference: 'room' },
    // A field of the service's own people: no mapping names it, and every write must keep it.
    { extId: 'course.note' },
  ],
};

/** `notes`: by external id, what the service's own people wrote on courses. */
export function createRoomsAndCourses(options: {
  rooms: number;
  courses: number;
  notes?: ReadonlyMap<string, string>;
  /** Objects in one request of both streams. */
  batchSize?: number | 'auto';
}): ChaosMirror {
  const { rooms, courses, notes = new Map(), batchSize = 25 } = options;
  return {
    configuration: CONFIGURATION.replaceAll('BATCH_SIZE', JSON.stringify(batchSize)),
    schema: SCHEMA,
    async fill(sql) {
      await sql.unsafe(`
        CREATE TABLE rooms (code text PRIMARY KEY, name text NOT NULL, version int NOT NULL DEFAULT 1);
        CREATE TABLE courses (id int PRIMARY KEY, name text NOT NULL, room text NOT NULL, version int NOT NULL DEFAULT 1);
        INSERT INTO rooms SELECT 'R' || i, 'Sal ' || i FROM generate_series(1, ${rooms}) AS i;
        INSERT INTO courses SELECT i, 'Kurs ' || i, 'R' || (1 + i % ${Math.ceil(rooms / 2)}) FROM generate_series(1, ${courses}) AS i;`);
    },
    readExpected: (sql) => readExpected(sql, notes),
  };
}

/** Most rows of a table that are away at once: fewer than make the plan wait for a person. */
const MOST_AWAY = 10;

/**
 * Changes rows by seeded chance: new versions, versions taken back, rooms exchanged, rows that come, go and come
 * back. Rooms that a course may name stay.
 */
export function createMirrorWriter(options: {
  sql: postgres.Sql;
  seed: number;
  rooms: number;
  courses: number;
}) {
  const { sql, rooms, courses } = options;
  const random = createRandom(options.seed);
  const upTo = (most: number) => 1 + Math.floor(random() * most);
  const away = { rooms: new Set<string>(), courses: new Set<number>() };
  const staying = Math.ceil(rooms / 2);
  let inserted = 0;
  let changes = 0;

  const pickRooms = () => Array.from({ length: upTo(25) }, () => `R${upTo(rooms)}`);
  const pickCourses = () => Array.from({ length: upTo(25) }, () => upTo(courses));

  async function change(): Promise<void> {
    const chance = random();
    if (chance < 0.3) {
      await sql`UPDATE rooms SET version = version + 1 WHERE code IN ${sql(pickRooms())}`;
    } else if (chance < 0.6) {
      await sql`UPDATE courses SET version = version + 1 WHERE id IN ${sql(pickCourses())}`;
    } else if (chance < 0.7) {
      await sql`UPDATE rooms SET version = version - 1 WHERE code IN ${sql(pickRooms())}`;
    } else if (chance < 0.8) {
      await sql`UPDATE courses SET version = version - 1, room = ${`R${upTo(staying)}`} WHERE id IN ${sql(pickCourses())}`;
    } else if (chance < 0.9) {
      const number = ++inserted;
      await sql`INSERT INTO rooms VALUES (${`N${number}`}, 'Ny') ON CONFLICT DO NOTHING`;
      await sql`INSERT INTO courses VALUES (${1_000_000 + number}, 'Ny', ${`N${number}`}) ON CONFLICT DO NOTHING`;
    } else if (chance < 0.95) {
      const code = `R${staying + upTo(rooms - staying)}`;
      const id = upTo(courses);
      if (away.rooms.size < MOST_AWAY) away.rooms.add(code);
      if (away.courses.size < MOST_AWAY) away.courses.add(id);
      await sql`DELETE FROM rooms WHERE code IN ${sql(Array.from(away.rooms))}`;
      await sql`DELETE FROM courses WHERE id IN ${sql(Array.from(away.courses))}`;
    } else {
      const [code] = away.rooms;
      const [id] = away.courses;
      if (code !== undefined) {
        await sql`INSERT INTO rooms VALUES (${code}, 'Igen') ON CONFLICT DO NOTHING`;
        away.rooms.delete(code);
      }
      if (id !== undefined) {
        await sql`INSERT INTO courses VALUES (${id}, 'Igen', 'R1') ON CONFLICT DO NOTHING`;
        away.courses.delete(id);
      }
    }
    changes++;
  }

  return {
    /** Makes a change. The database may be away: then it is left out, as whoever feeds a mirror would try another time. */
    async step(): Promise<string | undefined> {
      try {
        await change();
        return undefined;
      } catch (error) {
        return messageOf(error);
      }
    },
    changes: () => changes,
  };
}

async function readExpected(
  sql: postgres.Sql,
  notes: ReadonlyMap<string, string>,
): Promise<Map<string, Expected>> {
  const rooms = await sql<{ code: string; name: string; version: number }[]>`SELECT * FROM rooms`;
  const courses = await sql<
    { id: number; name: string; room: string; version: number }[]
  >`SELECT * FROM courses`;
  return new Map([
    ...rooms.map(({ code, name, version }) => {
      const fields = { 'room.name': name, 'room.version': String(version) };
      return [`room_${code}`, expectObject(`rooms ${code}`, 'room', fields)] as const;
    }),
    ...courses.map(({ id, name, room, version }) => {
      const extId = `course_${id}`;
      const fields = {
        'course.name': name,
        'course.version': String(version),
        'course.room': `room_${room}`,
        'course.note': notes.get(extId),
      };
      return [extId, expectObject(`courses ${id}`, 'course', fields)] as const;
    }),
  ]);
}

/** The active object of a row. */
export function expectObject(
  row: string,
  typeId: string,
  values: Record<string, string | undefined>,
): Expected {
  const fields = Object.entries(values).flatMap(([fieldId, value]) =>
    value === undefined ? [] : [{ fieldId, values: [value] }],
  );
  return { row, typeId, active: true, fields };
}

/** In one form, whatever order the fields were sent in. */
export function textOf(content: Content | undefined): string {
  if (content === undefined) return 'nothing';
  const fields = content.fields.map(({ fieldId, values }) => `${fieldId}=${values.join('|')}`).sort();
  return `${content.typeId} ${content.active ? 'active' : 'inactive'} ${fields.join(' ')}`;
}
