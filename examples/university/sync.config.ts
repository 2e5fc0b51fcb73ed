// A small university: what the demo does not show. Codes that are translated, a key of two columns, objects that were made
// by hand before, and records that are deactivated when their rows are gone.
import { defineConfig } from 'slotsync';

export default defineConfig({
  schedule: { nightly: '0 2 * * *', timezone: 'Europe/Stockholm' },

  // Each Sunday morning, read back what the service holds. A few differences are sent again; many wait for an operator.
  verify: { after: '0 5 * * 0', repair: 'within-limits' },

  lookups: {
    language: { sv: 'Swedish', en: 'English', de: 'German', xx: null }, // xx: not decided, so the field stays empty
    // A table of the mirror: a new kind of room needs no change of this file.
    roomKind: { from: 'campus.room_kinds', key: 'code', value: 'label' },
  },

  streams: {
    rooms: {
      from: 'campus.rooms',
      key: 'room_code',
      type: 'room',
      externalId: 'room_{room_code}',
      fields: {
        'room.name': 'name',
        'room.building': 'building',
        'room.seats': 'seats',
        'room.kind': { column: 'kind', lookup: 'roomKind' },
      },
      // The scheduling office had typed in some rooms. A room with the same name and building is taken over, not made twice.
      match: ['room.name', 'room.building'],
      cursor: 'updated_at',
      retire: 'deactivate',
    },

    teachers: {
      // Who has left is not in the source any more. That is what `retire` looks at.
      from: {
        query: `SELECT staff_no, given_name, family_name, email, updated_at FROM campus.teachers
                WHERE left_on IS NULL OR left_on > current_date`,
      },
      key: 'staff_no',
      type: 'teacher',
      externalId: 'teacher_{staff_no}',
      fields: {
        'teacher.name': (row) => `${row.given_name} ${row.family_name}`,
        'teacher.email': 'email',
      },
      cursor: 'updated_at',
      retire: 'deactivate',
      graceDays: 14, // contracts are often renewed late
    },

    courses: {
      from: 'campus.courses',
      key: 'course_code',
      type: 'course',
      externalId: 'course_{course_code}',
      fields: {
        'course.title': 'title',
        'course.credits': 'credits',
        'course.language': { column: 'language', lookup: 'language' },
      },
      cursor: 'updated_at',
    },

    offerings: {
      from: 'campus.offerings',
      key: ['course_code', 'term'],
      type: 'offering',
      externalId: 'offering_{course_code}_{term}',
      fields: { 'offering.term': 'term', 'offering.students': 'students' },
      references: {
        'offering.course': { stream: 'courses', key: 'course_code' },
        'offering.teachers': { stream: 'teachers', key: 'teachers' }, // a list: one value each
      },
      cursor: 'updated_at',
    },
  },

  reservations: {
    from: 'campus.lessons',
    key: 'id',
    externalId: 'lesson_{id}',
    begin: 'starts_at',
    end: 'ends_at',
    timezone: 'Europe/Stockholm', // the columns have no zone of their own
    objects: [
      { stream: 'rooms', key: 'room_code' },
      { stream: 'offerings', key: ['course_code', 'term'] },
    ],
    cancelled: 'cancelled_at',
    window: { pastDays: 7, futureDays: 120 },
  },
});
