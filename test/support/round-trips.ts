// Counts what programs ask of their databases, as read from what they send through a hop: the statements of PostgreSQL and the commands
// of Redis, and how often the program has to wait for an answer to go on. Whatever driver sends them, they count the same.
import { createHash } from 'node:crypto';
import { startHop, type Listener } from './hop.js';

/** A statement by its beginning, or a command by its name. */
export interface Place {
  place: string;
  statements: number;
  /** Times that the client asked for an answer: PostgreSQL's Query, Sync and Flush; on Redis a pipeline is one. */
  roundTrips: number;
}

export interface Tally {
  statements: number;
  roundTrips: number;
  transactions: number;
  /** Most statements first. */
  places: Place[];
}

const OPENING = '(a connection is opened)';
const LONGEST_PLACE = 90;

type Note = (text: string, figure: 'statements' | 'roundTrips') => void;

/** A hop in front of a PostgreSQL or a Redis that counts what passes through it. */
export async function startCountingHop(serverUrl: string) {
  const places = new Map<string, Place>();
  const note: Note = (text, figure) => {
    const place = nameOf(text);
    const counted = places.get(place) ?? { place, statements: 0, roundTrips: 0 };
    counted[figure] += 1;
    places.set(place, counted);
  };
  /** The names of Redis scripts by their SHA-1. */
  const scripts = new Map<string, string>();
  const isRedis = serverUrl.startsWith('redis');
  const hop = await startHop(serverUrl, {
    onConnection: () => (isRedis ? readRedis(note, scripts) : readPostgres(note)),
  });
  return {
    ...hop,
    /** Since the start, or since it was cleared. */
    tally: (): Tally => sumUp([...places.values()]),
    clear: () => places.clear(),
  };
}

/** Adds up several hops, or several times. */
export function addTallies(tallies: readonly Tally[]): Tally {
  const places = new Map<string, Place>();
  for (const { place, statements, roundTrips } of tallies.flatMap((tally) => tally.places)) {
    const { statements: before = 0, roundTrips: waited = 0 } = places.get(place) ?? {};
    places.set(place, { place, statements: before + statements, roundTrips: waited + roundTrips });
  }
  return sumUp([...places.values()]);
}

function sumUp(places: readonly Place[]): Tally {
  const sum = (figure: 'statements' | 'roundTrips') =>
    places.reduce((total, place) => total + place[figure], 0);
  const begins = places.filter(({ place }) => /^begin\b/i.test(place));
  return {
    statements: sum('statements'),
    roundTrips: sum('roundTrips'),
    transactions: begins.reduce((total, { statements }) => total + statements, 0),
    places: places.toSorted((a, b) => b.statements - a.statements || b.roundTrips - a.roundTrips),
  };
}

/** The beginning of a statement: its numbers are left out, so that the same statement is one place. */
function nameOf(text: string): string {
  const line = text.replaceAll(/\s+/g, ' ').trim();
  return line.replaceAll(/(?<![\w$])\d+/g, 'n').slice(0, LONGEST_PLACE);
}

const SSL_REQUEST = 80_877_103;
const GSS_REQUEST = 80_877_104;
/** Bytes of a message that are read; the rest of a longer one is passed over. */
const READ_MOST = 2000;

/** Reads the frontend messages of PostgreSQL's protocol 3. */
function readPostgres(note: Note): Listener {
  const statements = new Map<string, string>();
  const portals = new Map<string, string>();
  let current = OPENING;

  function read(type: string, body: Buffer): void {
    const [first = '', second = ''] = body.toString('utf8').split('\0', 2);
    switch (type) {
      case 'p': // a password, or a step of SASL
        return note(OPENING, 'roundTrips');
      case 'Q':
        current = first;
        note(current, 'statements');
        return note(current, 'roundTrips');
      case 'P':
        statements.set(first, second);
        current = second;
        return;
      case 'B':
        current = statements.get(second) ?? '(an unknown statement)';
        portals.set(first, current);
        return;
      case 'E':
        return note(portals.get(first) ?? current, 'statements');
      case 'S': // Sync
      case 'H': // Flush
      case 'c': // CopyDone
        return note(current, 'roundTrips');
      default:
    }
  }

  let rest: Buffer = Buffer.alloc(0);
  let passOver = 0;
  let isOpen = false;
  return (chunk) => {
    const passed = Math.min(passOver, chunk.length);
    passOver -= passed;
    rest = Buffer.concat([rest, chunk.subarray(passed)]);
    for (;;) {
      // A message that opens a connection has no type.
      const head = isOpen ? 5 : 4;
      if (rest.length < head) return;
      const length = rest.readInt32BE(head - 4) + head - 4;
      if (rest.length < Math.min(length, READ_MOST)) return;
      const body = rest.subarray(head, Math.min(length, READ_MOST));
      if (isOpen) {
        read(String.fromCharCode(rest[0] ?? 0), body);
      } else {
        isOpen = ![SSL_REQUEST, GSS_REQUEST].includes(body.readInt32BE(0));
        note(OPENING, 'roundTrips');
      }
      passOver = Math.max(0, length - rest.length);
      rest = rest.subarray(Math.min(length, rest.length));
    }
  };
}

/** Reads the commands of a client of Redis. Each chunk counts as a round trip: a pipeline is written at once. */
function readRedis(note: Note, scripts: Map<string, string>): Listener {
  let rest: Buffer = Buffer.alloc(0);
  return (chunk) => {
    rest = Buffer.concat([rest, chunk]);
    let last: string | undefined;
    for (let command = readCommand(rest); command; command = readCommand(rest)) {
      last = nameCommand(command.words, scripts);
      note(last, 'statements');
      rest = rest.subarray(command.length);
    }
    if (last !== undefined) note(last, 'roundTrips');
  };
}

/** The first command in these bytes: an array of texts; undefined until all of it is there. */
function readCommand(bytes: Buffer): { words: string[]; length: number } | undefined {
  let at = 0;
  const readNumber = (): number | undefined => {
    const end = bytes.indexOf('\r\n', at);
    if (end < 0) return undefined;
    const number = Number(bytes.toString('latin1', at + 1, end));
    at = end + 2;
    return number;
  };
  const count = readNumber();
  if (count === undefined) return undefined;
  const words: string[] = [];
  for (let word = 0; word < count; word++) {
    const length = readNumber();
    if (length === undefined || bytes.length < at + length + 2) return undefined;
    words.push(bytes.toString('utf8', at, at + length));
    at += length + 2;
  }
  return { words, length: at };
}

function nameCommand(
  [name = '', script = '', text = '']: readonly string[],
  scripts: Map<string, string>,
): string {
  const command = name.toUpperCase();
  const learn = (lua: string) => {
    const words = lua.replaceAll(/^[\s[\]-]+/g, '');
    scripts.set(createHash('sha1').update(lua).digest('hex'), words);
    return words;
  };
  if (command === 'EVAL') return `script: ${learn(script)}`;
  if (command === 'EVALSHA') return `script: ${scripts.get(script) ?? script}`;
  if (command === 'SCRIPT' && script.toUpperCase() === 'LOAD') learn(text);
  return command;
}
