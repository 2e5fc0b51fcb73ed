// Configuration of the sample university, and the types and fields that its scheduling office defined at the service.
import type { SandboxSchema } from '../sandbox/schema.js';
import type { SlotsyncConfig } from '../streams/config-schema.js';

export const universityConfig: SlotsyncConfig = {
  streams: {
    buildings: {
      from: 'campus.buildings',
      key: 'building_code',
      type: 'building',
      externalId: 'building_{building_code}',
      fields: { 'building.name': 'name', 'building.name.en': 'nameEn', 'building.campus': 'campus' },
      owns: 'object',
    },
    rooms: {
      from: 'campus.rooms',
      key: 'room_code',
      type: 'room',
      externalId: 'room_{room_code}',
      fields: {
        'room.name': 'name',
        'room.seats': 'seats',
        'room.equipment': 'equipment',
        'room.accessible': 'wheelchairAccess',
      },
      references: { 'room.building': { stream: 'buildings', key: 'building_code' } },
      cursor: 'updated_at',
      retire: 'deactivate',
    },
    staff: {
      from: { query: 'SELECT * FROM campus.staff WHERE left_on IS NULL' },
      key: 'id',
      type: 'person.staff',
      externalId: 'person_{staff_number}',
      fields: {
        'person.name': {
          from: (row) => [row.given_name, row.family_name].filter(Boolean).join(' ') || null,
          write: 'changed',
        },
        'person.title': 'title',
        'person.email': 'email',
        'person.department': 'department',
        'person.hired': 'hired_on',
      },
      cursor: 'updated_at',
      retire: 'deactivate',
    },
    courses: {
      from: 'campus.courses',
      key: 'course_code',
      type: 'course',
      externalId: 'course_{course_code}',
      fields: {
        'course.code': 'course_code',
        'course.name': 'name',
        'course.name.en': 'nameEn',
        'course.credits': (row) => {
          if (row.credits === null) return null;
          const credits = Number(row.credits);
          if (Number.isNaN(credits)) throw new Error('credits is not a number');
          return credits;
        },
        'course.start': 'starts_on',
        'course.end': 'ends_on',
        'course.open': 'is_open',
      },
      references: {
        'course.responsible': { stream: 'staff', key: 'responsible' },
        'course.room': { stream: 'rooms', key: 'home_room' },
      },
      cursor: 'updated_at',
      retire: 'deactivate',
    },
    student_groups: {
      from: 'campus.student_groups',
      key: ['programme_code', 'year_group'],
      type: 'group',
      externalId: 'group_{programme_code}_{year_group}',
      fields: {
        'group.name': (row) => `${row.programme_name}, årskurs ${row.year_group}`,
        'group.size': 'size',
      },
      references: { 'group.courses': { stream: 'courses', key: 'course_codes' } },
      cursor: 'updated_at',
      owns: 'object',
    },
  },
  reservations: {
    from: 'campus.bookings',
    key: 'id',
    externalId: 'res_{id}',
    begin: 'starts_at',
    end: 'ends_at',
    timezone: 'Europe/Stockholm',
    objects: [
      { stream: 'rooms', key: 'room_code' },
      { stream: 'courses', key: 'course_code' },
    ],
    cancelled: 'is_cancelled',
  },
};

/** Types and fields at the service. `room.note` is filled by hand: no mapping names it, and no write may clear it. */
export const universitySchema: SandboxSchema = {
  types: [
    { extId: 'building', name: 'Building' },
    { extId: 'room', name: 'Room' },
    { extId: 'person.staff', name: 'Staff' },
    { extId: 'course', name: 'Course' },
    { extId: 'group', name: 'Student group' },
  ],
  fields: [
    { extId: 'building.name', name: 'Name', type: 'building', mandatory: true, maxLength: 100 },
    { extId: 'building.name.en', name: 'Name in English', type: 'building' },
    { extId: 'building.campus', name: 'Campus', type: 'building' },
    { extId: 'room.name', name: 'Name', type: 'room', mandatory: true, maxLength: 60 },
    { extId: 'room.building', name: 'Building', type: 'room', reference: 'building' },
    { extId: 'room.seats', name: 'Seats', type: 'room' },
    { extId: 'room.equipment', name: 'Equipment', type: 'room' },
    { extId: 'room.accessible', name: 'Accessible by wheelchair', type: 'room' },
    { extId: 'room.note', name: 'Note of the scheduling office', type: 'room' },
    { extId: 'person.name', name: 'Name', type: 'person.staff', mandatory: true, maxLength: 100 },
    { extId: 'person.title', name: 'Title', type: 'person.staff' },
    { extId: 'person.email', name: 'E-mail', type: 'person.staff' },
    { extId: 'person.department', name: 'Department', type: 'person.staff' },
    { extId: 'person.hired', name: 'Hired on', type: 'person.staff' },
    { extId: 'course.code', name: 'Code', type: 'course', mandatory: true },
    { extId: 'course.name', name: 'Name', type: 'course', mandatory: true, maxLength: 120 },
    { extId: 'course.name.en', name: 'Name in English', type: 'course' },
    { extId: 'course.credits', name: 'Credits', type: 'course' },
    { extId: 'course.start', name: 'First day', type: 'course' },
    { extId: 'course.end', name: 'Last day', type: 'course' },
    { extId: 'course.open', name: 'Open for application', type: 'course' },
    { extId: 'course.responsible', name: 'Responsible', type: 'course', reference: 'person.staff' },
    { extId: 'course.room', name: 'Home room', type: 'course', reference: 'room' },
    { extId: 'group.name', name: 'Name', type: 'group', mandatory: true },
    { extId: 'group.size', name: 'Students', type: 'group' },
    { extId: 'group.courses', name: 'Courses', type: 'group', reference: 'course' },
  ],
};

export default universityConfig;
