// What the sample university's names are made of: several scripts, since a mirror holds people's real names.

export const BUILDINGS = [
  { code: 'A', name: 'Ångströmhuset', english: 'The Ångström Building' },
  { code: 'B', name: 'Biblioteket', english: 'The Library' },
  { code: 'C', name: 'Celsiushallen', english: 'Celsius Hall' },
  { code: 'E', name: 'Ekonomikum', english: null },
  { code: 'F', name: 'Fysiken', english: 'Physics' },
  { code: 'H', name: 'Höghuset', english: 'The Tower' },
  { code: 'K', name: 'Kemihuset', english: 'Chemistry' },
  { code: 'M', name: 'Λύκειον', english: 'The Lyceum' },
  { code: 'N', name: 'Norra salarna', english: 'North Halls' },
  { code: 'P', name: 'Pedagogen', english: null },
  { code: 'V', name: 'Västra flygeln', english: 'West Wing' },
  { code: 'Ö', name: 'Östra flygeln', english: 'East Wing' },
] as const;

export const SUBJECTS = [
  { code: 'ALG', name: 'algebra', english: 'Algebra' },
  { code: 'ARK', name: 'arkitektur', english: 'Architecture' },
  { code: 'AST', name: 'astronomi', english: 'Astronomy' },
  { code: 'BIO', name: 'biologi', english: 'Biology' },
  { code: 'DAT', name: 'datavetenskap', english: 'Computer Science' },
  { code: 'EKO', name: 'nationalekonomi', english: 'Economics' },
  { code: 'ENG', name: 'engelska', english: 'English' },
  { code: 'FIL', name: 'filosofi', english: 'Philosophy' },
  { code: 'FYS', name: 'fysik', english: 'Physics' },
  { code: 'GEO', name: 'geodesi', english: 'Geodesy' },
  { code: 'GRE', name: 'nygrekiska (νέα ελληνικά)', english: 'Modern Greek' },
  { code: 'HIS', name: 'historia', english: 'History' },
  { code: 'JAP', name: 'japanska (日本語)', english: 'Japanese' },
  { code: 'JUR', name: 'rättsvetenskap', english: 'Law' },
  { code: 'KEM', name: 'kemi', english: 'Chemistry' },
  { code: 'LÄK', name: 'läkekonst', english: 'Medicine' },
  { code: 'MAT', name: 'matematik', english: 'Mathematics' },
  { code: 'MUS', name: 'musikvetenskap', english: 'Musicology' },
  { code: 'ODO', name: 'tandvård', english: 'Dental Care' },
  { code: 'PED', name: 'pedagogik', english: 'Education' },
  { code: 'PSY', name: 'psykologi', english: 'Psychology' },
  { code: 'RYS', name: 'ryska (русский язык)', english: 'Russian' },
  { code: 'STA', name: 'statistik', english: 'Statistics' },
  { code: 'VÅR', name: 'vårdvetenskap', english: 'Nursing' },
] as const;

export const COURSE_FORMS = [
  { name: 'Grundkurs i', english: 'Foundations of', level: 'G1' },
  { name: 'Fortsättningskurs i', english: 'Further', level: 'G2' },
  { name: 'Avancerad kurs i', english: 'Advanced', level: 'A1' },
  { name: 'Projektkurs i', english: 'Project in', level: 'A1' },
  { name: 'Seminarium i', english: 'Seminar on', level: 'F' },
] as const;

export const PROGRAMME_FORMS = [
  { code: 'K', name: 'Kandidatprogrammet i' },
  { code: 'M', name: 'Masterprogrammet i' },
  { code: 'H', name: 'Högskoleprogrammet i' },
  { code: 'L', name: 'Lärarprogrammet i' },
  { code: 'D', name: 'Distansprogrammet i' },
] as const;

export const PEOPLE = [
  {
    given: ['Åsa', 'Björn', 'Ingegerd', 'Örjan', 'Märta'],
    family: ['Åkesson', 'Öberg', 'Sjöström', 'von Essen'],
  },
  { given: ['Aino', 'Väinö', 'Päivi'], family: ['Hämäläinen', 'Mäkelä', 'Yli-Kärppä'] },
  { given: ['Ελένη', 'Γιώργος', 'Σοφία'], family: ['Παπαδοπούλου', 'Οικονόμου', 'Νικολάου'] },
  { given: ['Łukasz', 'Małgorzata', 'Święta'], family: ['Wiśniewski', 'Dąbrowska', 'Żółtowska'] },
  { given: ['Siân', 'Owen', "D'Arcy"], family: ["O'Brien", 'ap Rhys', 'Smith-Jones'] },
  { given: ['Наталія', 'Олексій', 'Дмитрий'], family: ['Шевченко', 'Коваленко', 'Иванова'] },
  { given: ['伟', '秀英', '小明'], family: ['王', '李', '欧阳'] },
  { given: ['さくら', '健太', 'ゆうこ'], family: ['佐藤', '鈴木', '髙橋'] },
  { given: ['فاطمة', 'يوسف', 'ليلى'], family: ['حداد', 'الخوري', 'منصور'] },
  { given: ['प्रिया', 'अर्जुन', 'मीरा'], family: ['शर्मा', 'पटेल', 'गुप्ता'] },
  { given: ['Ngọc', 'Thị Hương', 'Đức'], family: ['Nguyễn', 'Trần', 'Đặng'] },
  { given: ['José', 'Núria', 'João'], family: ['Peña', 'Martínez i Puig', 'Conceição'] },
] as const;

export const TITLES = ['adjunkt', 'lektor', 'docent', 'professor', 'forskare', null] as const;
export const STREETS = ['Kyrkogatan', 'Älvvägen', 'Norra Ågatan', 'Observatoriegatan'] as const;
export const CAMPUSES = ['Centrum', 'Norr', 'Ön'] as const;
export const EQUIPMENT = [
  'projector',
  'whiteboard',
  'hörslinga',
  'piano',
  'fume cupboard',
  'video link',
] as const;
export const ROOM_NAMES = ['Linné', 'Hypatia', 'Noether', 'Kovalevskaja', 'Πλάτων', 'Ada', 'Ørsted'] as const;
