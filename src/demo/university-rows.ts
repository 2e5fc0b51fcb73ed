// Generates the rows of a university: the same seed gives the same rows. Most are good; each of those in BAD_ROWS shows one
// error of real data.
import type { ReservationInput } from '../sandbox/reservation-store.js';
import { createRandom } from '../sandbox/random.js';
import * as words from './words.js';

export type University = ReturnType<typeof generateUniversity>;

export interface BadRow {
  stream: string;
  localKey: string;
  /** `deferred`: waits for another record. `failed`: retried by every run. `dead`: waits for an operator, or until the row changes. */
  outcome: 'deferred' | 'failed' | 'dead';
  why: string;
}

/** Rows that do not become objects, and why. */
export const BAD_ROWS: readonly BadRow[] = [
  { stream: 'courses', localKey: 'GEO404', outcome: 'deferred', why: 'its home room Ö404 does not exist' },
  {
    stream: 'courses',
    localKey: 'MAT888',
    outcome: 'dead',
    why: 'its credits are not a number, so the mapping fails',
  },
  {
    stream: 'staff',
    localKey: '9001',
    outcome: 'dead',
    why: 'it has no name, which is mandatory at the service',
  },
  { stream: 'staff', localKey: '9002', outcome: 'dead', why: 'its name is longer than the service allows' },
  { stream: 'staff', localKey: '9003', outcome: 'failed', why: 'it shares its staff number with 9004' },
  { stream: 'staff', localKey: '9004', outcome: 'failed', why: 'it shares its staff number with 9003' },
];

/** The room that GEO404 waits for. */
export const MISSING_ROOM = 'Ö404';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const ROOMS = 400;
const STAFF = 800;
const FIRST_STAFF_ID = 1001;
const COURSES_PER_SUBJECT = 50;
const YEARS = [1, 2, 3, 4, 5];
const BOOKINGS = 600;

/** Generates all rows; `now` places bookings and times of change around it. */
export function generateUniversity({ seed, now }: { seed: number; now: Date }) {
  const dice = createDice(seed, now);
  const buildings = words.BUILDINGS.map((building) => generateBuilding(dice, building));
  const rooms = range(ROOMS).map((at) => generateRoom(dice, at));
  const goodStaff = range(STAFF).map((at) => generatePerson(dice, FIRST_STAFF_ID + at));
  const goodCourses = words.SUBJECTS.flatMap((subject) =>
    range(COURSES_PER_SUBJECT).map((at) => generateCourse(dice, subject, at, { rooms, staff: goodStaff })),
  );
  const groups = words.PROGRAMME_FORMS.flatMap((form) =>
    words.SUBJECTS.flatMap((subject) =>
      YEARS.map((year) => generateGroup(dice, { form, subject, year, courses: goodCourses })),
    ),
  );
  const bookings = range(BOOKINGS).map((at) =>
    generateBooking(dice, at + 1, { rooms, courses: goodCourses }),
  );
  return {
    buildings,
    rooms,
    staff: [...goodStaff, ...generateBadStaff(dice)],
    courses: [...goodCourses, ...generateBadCourses(dice, goodCourses)],
    student_groups: groups,
    bookings,
  };
}

type Dice = ReturnType<typeof createDice>;

function createDice(seed: number, now: Date) {
  const random = createRandom(seed);
  const below = (count: number) => Math.floor(random() * count);
  return {
    below,
    between: (low: number, high: number) => low + below(high - low + 1),
    chance: (probability: number) => random() < probability,
    pick<T>(list: readonly T[]): T {
      const picked = list[below(list.length)];
      if (picked === undefined) throw new Error('nothing to pick from');
      return picked;
    },
    /** In the year before now, to the microsecond, which is finer than a JavaScript Date. */
    updatedAt(): string {
      const time = new Date(now.getTime() - below(365) * DAY_MS - below(DAY_MS)).toISOString();
      return time.replace('Z', `${String(below(1000)).padStart(3, '0')}Z`);
    },
    day: (fromYear: number, toYear: number) =>
      new Date(Date.UTC(fromYear + below(toYear - fromYear + 1), below(12), 1 + below(28)))
        .toISOString()
        .slice(0, 10),
    today: new Date(Math.floor(now.getTime() / DAY_MS) * DAY_MS),
    year: now.getUTCFullYear(),
  };
}

function generateBuilding(dice: Dice, { code, name, english }: (typeof words.BUILDINGS)[number]) {
  return {
    building_code: code,
    name,
    nameEn: english,
    street: `${dice.pick(words.STREETS)} ${dice.between(1, 90)}`,
    campus: dice.pick(words.CAMPUSES),
    floors: dice.between(2, 9),
    opened_on: dice.day(1890, 2020),
    has_lift: dice.chance(0.8),
    updated_at: dice.updatedAt(),
  };
}

function generateRoom(dice: Dice, at: number) {
  const building = words.BUILDINGS[at % words.BUILDINGS.length]?.code ?? 'A';
  const number = Math.floor(at / words.BUILDINGS.length);
  const floor = 1 + Math.floor(number / 12);
  const room_code = `${building}${floor}${String((number % 12) + 1).padStart(2, '0')}`;
  return {
    room_code,
    building_code: building,
    name: dice.chance(0.2) ? `${dice.pick(words.ROOM_NAMES)} (${room_code})` : room_code,
    floor,
    seats: dice.chance(0.05) ? null : dice.between(8, 320),
    equipment: words.EQUIPMENT.filter(() => dice.chance(0.35)),
    wheelchairAccess: dice.chance(0.05) ? null : dice.chance(0.8),
    note: dice.chance(0.1) ? 'Nyckel i receptionen; ring före 16:00 – "sal stängs"' : null,
    updated_at: dice.updatedAt(),
  };
}

function generatePerson(dice: Dice, id: number) {
  const { given, family } = dice.pick<{ given: readonly string[]; family: readonly string[] }>(words.PEOPLE);
  const hasLeft = dice.chance(0.03);
  return {
    id,
    staff_number: `S${id}`,
    given_name: dice.pick(given) as string | null,
    family_name: dice.pick(family) as string | null,
    title: words.TITLES[dice.below(words.TITLES.length)] ?? null,
    email: dice.chance(0.05) ? null : `s${id}@campus.example`,
    department: dice.pick(words.SUBJECTS).name as string,
    is_teaching: dice.chance(0.7),
    hired_on: dice.day(1985, dice.year - 2),
    left_on: hasLeft ? dice.day(dice.year - 1, dice.year - 1) : null,
    updated_at: dice.updatedAt(),
  };
}

function generateCourse(
  dice: Dice,
  subject: (typeof words.SUBJECTS)[number],
  at: number,
  { rooms, staff }: { rooms: readonly { room_code: string }[]; staff: ReturnType<typeof generatePerson>[] },
) {
  const form = dice.pick(words.COURSE_FORMS);
  const part = 1 + Math.floor(at / words.COURSE_FORMS.length);
  const isSpring = dice.chance(0.5);
  const responsible = dice.pick(staff);
  return {
    course_code: `${subject.code}${101 + at}`,
    name: `${form.name} ${subject.name} ${part}`,
    nameEn: dice.chance(0.9) ? `${form.english} ${subject.english} ${part}` : null,
    credits: dice.pick(['5', '7.5', '10', '15', '30']) as string | null,
    level: form.level as string,
    language: dice.pick(['sv', 'en', 'el', 'ja']),
    starts_on: isSpring ? `${dice.year}-01-15` : `${dice.year}-08-28`,
    ends_on: isSpring ? `${dice.year}-06-05` : `${dice.year + 1}-01-14`,
    responsible: responsible.left_on === null && dice.chance(0.9) ? responsible.id : null,
    home_room: dice.chance(0.85) ? dice.pick(rooms).room_code : null,
    is_open: dice.chance(0.6),
    updated_at: dice.updatedAt(),
  };
}

function generateGroup(
  dice: Dice,
  {
    form,
    subject,
    year,
    courses,
  }: {
    form: (typeof words.PROGRAMME_FORMS)[number];
    subject: (typeof words.SUBJECTS)[number];
    year: number;
    courses: readonly { course_code: string }[];
  },
) {
  const own = courses.filter(({ course_code }) => course_code.startsWith(subject.code));
  const chosen = range(dice.below(5)).map(() => dice.pick(own).course_code);
  return {
    programme_code: `${form.code}${subject.code}`,
    year_group: year,
    programme_name: `${form.name} ${subject.name}`,
    size: dice.chance(0.1) ? null : dice.between(6, 180),
    is_distance: form.code === 'D',
    course_codes: [...new Set(chosen)].sort(),
    updated_at: dice.updatedAt(),
  };
}

/** From five days ago to ten weeks ahead, from 8 to 18. Rooms may be booked twice at a time. */
function generateBooking(
  dice: Dice,
  id: number,
  {
    rooms,
    courses,
  }: { rooms: readonly { room_code: string }[]; courses: readonly { course_code: string }[] },
) {
  const begin = dice.today.getTime() + dice.between(-5, 70) * DAY_MS + dice.between(8, 16) * HOUR_MS;
  return {
    id,
    room_code: dice.pick(rooms).room_code,
    course_code: dice.pick(courses).course_code,
    starts_at: new Date(begin).toISOString(),
    ends_at: new Date(begin + dice.pick([45, 90, 105]) * MINUTE_MS).toISOString(),
    is_cancelled: (DIFFERING_BOOKINGS.cancelledHere as readonly number[]).includes(id),
    updated_at: dice.updatedAt(),
  };
}

function generateBadStaff(dice: Dice) {
  const person = (id: number) => ({ ...generatePerson(dice, id), left_on: null });
  return [
    { ...person(9001), given_name: null, family_name: null },
    { ...person(9002), family_name: Array.from({ length: 30 }, () => 'Lång').join('-') },
    { ...person(9003), staff_number: 'S9003' },
    { ...person(9004), staff_number: 'S9003' },
  ];
}

function generateBadCourses(dice: Dice, [like]: readonly ReturnType<typeof generateCourse>[]) {
  if (!like) return [];
  const course = { ...like, responsible: null, updated_at: dice.updatedAt() };
  return [
    {
      ...course,
      course_code: 'GEO404',
      name: 'Fältkurs i geodesi',
      nameEn: 'Geodesy Outdoors',
      home_room: MISSING_ROOM,
    },
    {
      ...course,
      course_code: 'MAT888',
      name: 'Räkna rätt',
      nameEn: 'Counting Right',
      credits: 'sju och en halv',
    },
  ];
}

/** Bookings, by id, that differ from the service's reservations. */
export const DIFFERING_BOOKINGS = {
  movedThere: [5, 6, 7],
  otherRoomThere: [8],
  missingThere: [12, 13],
  cancelledThere: [20, 21],
  cancelledHere: [30],
} as const;

/**
 * The reservations of the scheduling service: schedulers have moved and cancelled some of the bookings and added one.
 * Those in `cancel` are to be added first and then cancelled.
 */
export function generateReservations({ bookings, rooms }: Pick<University, 'bookings' | 'rooms'>): {
  add: ReservationInput[];
  cancel: string[];
} {
  const isIn = (list: readonly number[], { id }: { id: number }) => list.includes(id);
  const add = bookings
    .filter((booking) => !isIn(DIFFERING_BOOKINGS.missingThere, booking))
    .map((booking): ReservationInput => {
      const delay = isIn(DIFFERING_BOOKINGS.movedThere, booking) ? HOUR_MS : 0;
      const otherRoom = rooms.find(({ room_code }) => room_code !== booking.room_code)?.room_code;
      const room = isIn(DIFFERING_BOOKINGS.otherRoomThere, booking) ? otherRoom : booking.room_code;
      return {
        extId: `res_${booking.id}`,
        begin: (Date.parse(booking.starts_at) + delay) / 1000,
        end: (Date.parse(booking.ends_at) + delay) / 1000,
        objects: [
          { typeId: 'room', objectId: `room_${room}` },
          { typeId: 'course', objectId: `course_${booking.course_code}` },
        ],
      };
    });
  const [like] = add;
  if (like) add.push({ ...like, extId: 'made_by_hand_1' });
  return { add, cancel: DIFFERING_BOOKINGS.cancelledThere.map((id) => `res_${id}`) };
}

function range(count: number): number[] {
  return Array.from({ length: count }, (_, at) => at);
}
