// A document: facts arranged to be read, as sections of paragraphs, facts, points and a table. A terminal, the page, a mail
// and a ticket show the same document. Programs get the facts themselves.

import { quote } from '../situation/commands.js';
import { present } from '../text/format.js';
import { nameOfRule, type KeptField } from '../streams/field-rules.js';

/** A part of a sentence that a surface may show in its own way. A `Date` is shown to the second. */
export type Part =
  | string
  | Date
  /** A time whose seconds don't matter. */
  | { minute: Date }
  /** A time in few characters: the clock of the same day as `now`, the day of another one. */
  | { near: Date; now: Date }
  /** A command that an operator types. */
  | { command: string }
  /** The status of a run, a record or a process, as one word. */
  | { status: string }
  /** `href`: an address of the operator's page. Other surfaces show the text alone. */
  | { text: string | number; href: string };

/** Words that people read in place of the names of statuses. */
export const WORDS_OF_STATUSES: Readonly<Record<string, string>> = {
  dead: 'given up',
  retired: 'deactivated',
};

/** A sentence, in parts where one of them is more than characters. */
export type Text = string | { parts: readonly Part[] };

/** A number is aligned to the right, and grouped by thousands. */
export type Cell = Text | number;

export interface Table {
  /** Says what the rows are, for whoever does not see the headings above them. The title of the section unless set. */
  caption?: string | undefined;
  headings: readonly string[];
  rows: readonly (readonly Cell[])[];
}

/** Something that an operator may do: the page offers a button instead of the command, where somebody may act on it. */
export interface Action {
  command: string;
  /** The address that is asked, or does it. */
  href: string;
  label: string;
  /** Names the object of the action, for whoever does not see the button's surroundings. */
  about: string;
  /** The page does it without asking once more. */
  isImmediate?: boolean | undefined;
}

/** A fact, its details line by line, and what an operator runs. */
export interface Point {
  /** On the page, a sign before the text. The text does not depend on it. */
  status?: string | undefined;
  text: Text;
  /** The text where the point is one line, if that is another one. */
  line?: Text | undefined;
  /** Since when it is so, where the point is one line and does not say it. */
  since?: { near: Date; now: Date } | undefined;
  /** The number of a concern, by which a command shows its details. */
  number?: number | undefined;
  details?: readonly Text[] | undefined;
  /** Lines to be shown as they are, such as values side by side. */
  samples?: readonly string[] | undefined;
  /** The next step, and what an operator does about it. */
  next?: Text | undefined;
  /** The page draws it as a bar. The text names both numbers. */
  progress?: { done: number; total: number } | undefined;
  /** A command that `next` names already is not shown again, except as the page's button. */
  commands?: readonly (string | Action)[] | undefined;
}

/** A stream at a glance. */
export interface Card {
  stream: string;
  href: string;
  inSync: number;
  total: number;
  /** The last whole sync; null: none has succeeded yet. */
  synced: { near: Date; now: Date } | null;
  /** Notes such as `199 held` or `frozen`. The status decides the colour. */
  badges: readonly { status: string; text: string }[];
  /** A mark for each of the last nights, the oldest first. */
  nights: readonly Mark[];
}

/** `status`: of the run; `none`: there was none. */
export interface Mark {
  status: string;
  label: string;
  href?: string | undefined;
}

/** Numbers over time. Only the page draws them. */
export interface Graph {
  title: string;
  /** The content of the graph in a sentence. */
  says: Text;
  unit: string;
  points: readonly { label: Text; value: number }[];
  /** A second, dotted line. */
  peaks?: readonly number[] | undefined;
  /** A line across, such as the quota. */
  limit?: { value: number; name: string } | undefined;
  /** Names of the ends of the time axis. */
  ends: readonly [Text, Text];
  /** Only the page shows the graph, because a table of the document has the same numbers. */
  isOnlyDrawn?: boolean | undefined;
  /** Bars where each point counts for itself, such as a day. */
  isBars?: boolean | undefined;
}

/** The bookings of a week. Only the page draws them. */
export interface Week {
  /** Its days, such as `2026-11-23`, Monday first. */
  days: readonly string[];
  bookings: readonly {
    key: string;
    href: string;
    status: string;
    label: string;
    /** The period of the booking in the mirror. A second entry is its period at the service, where the two differ. */
    periods: readonly { begin: Date; end: Date }[];
  }[];
}

/** A name and its value. */
export type Fact = readonly [name: string, value: Text];

/** It is shown in this order: cards, graphs, paragraphs, facts, points, table. A section without any of them is not shown. */
export interface Section {
  /** Names the section within its document, also when its title changes. */
  id: string;
  title: string;
  /** An operator has to decide or correct something. The page marks it. */
  isUrgent?: boolean | undefined;
  /** The page shows its title, and the rest when somebody unfolds it. */
  isFolded?: boolean | undefined;
  /** The page shows a point in one line, and its details when somebody unfolds it. */
  isOneLine?: boolean | undefined;
  cards?: readonly Card[] | undefined;
  graphs?: readonly Graph[] | undefined;
  week?: Week | undefined;
  paragraphs?: readonly Text[] | undefined;
  facts?: readonly Fact[] | undefined;
  points?: readonly Point[] | undefined;
  /** Not shown without rows: headings alone say nothing. */
  table?: Table | undefined;
}

export interface Document {
  title: string;
  /** The state in one line. The status decides the colour. The address leads to the details. */
  headline?: { status: string; text: Text; href?: string | undefined } | undefined;
  /** Paragraphs above the sections: what it is about. */
  lead?: readonly Text[] | undefined;
  sections: readonly Section[];
}

/** The sections that say something. */
export const filledSections = (sections: readonly Section[]): Section[] =>
  sections.filter(({ cards = [], graphs = [], paragraphs = [], facts = [], points = [], table }) =>
    [cards, graphs, paragraphs, facts, points, table?.rows ?? []].some(({ length }) => length > 0),
  );

/** Numbers by stream. Columns without a number are left out. Undefined: every column is. */
export function countsByStream<Row extends { stream: string }>(
  rows: readonly Row[],
  columns: readonly (readonly [heading: string, countOf: (row: Row) => number])[],
): Table | undefined {
  const shown = columns.filter(([, countOf]) => rows.some((row) => countOf(row) > 0));
  if (shown.length === 0) return undefined;
  return {
    headings: ['stream', ...shown.map(([heading]) => heading)],
    rows: rows.map((row) => [row.stream, ...shown.map(([, countOf]) => countOf(row))]),
  };
}

type TextValue = Text | Part | false | null | undefined;

/** A sentence with its parts: text`Paused since ${date}; to continue: ${{ command }}`. What is false or null is left out. */
export function text(strings: TemplateStringsArray, ...values: readonly TextValue[]): Text {
  return joinTexts(
    strings.flatMap((string, index) => [string, values[index]]),
    '',
  );
}

/** Texts one after the other. What is false or null is left out. */
export function joinTexts(texts: readonly TextValue[], separator: string): Text {
  const parts = present<Text | Part>(texts)
    .filter((value) => value !== '')
    .map((value) => (typeof value === 'object' && 'parts' in value ? value.parts : [value]))
    .flatMap((value, index) => (index === 0 || separator === '' ? value : [separator, ...value]));
  return parts.every((part) => typeof part === 'string') ? parts.join('') : { parts };
}

export const addressOfRun = (runId: number): string => `/runs/${runId}`;

/** Browsers leave out `.` and `..` from an address, however they are encoded, and nothing matches no text. */
const NO_PART = /^~*\.{0,2}$/;

const partOf = (key: string): string => encodeURIComponent(NO_PART.test(key) ? `~${key}` : key);

/** The key of a decoded part of an address. */
export const keyOfPart = (part: string): string => (NO_PART.test(part) ? part.replace('~', '') : part);

export const addressOfRecord = (stream: string, localKey: string): string =>
  `/records/${encodeURIComponent(stream)}/${partOf(localKey)}`;

export const linkToRun = (runId: number): Part => ({ text: `run ${runId}`, href: addressOfRun(runId) });

export const linkToRecord = (stream: string, localKey: string): Text => ({
  parts: [{ text: `${stream} '${localKey}'`, href: addressOfRecord(stream, localKey) }],
});

export const addressOfBooking = (key: string): string => `/bookings/${partOf(key)}`;

/** `booking 4`: the key as a shell takes it. */
export const linkToBooking = (key: string): Part => ({
  text: `booking ${quote(key)}`,
  href: addressOfBooking(key),
});

/** An address with a query, of the values that there are. */
export function withQuery(path: string, query: Readonly<Record<string, string | undefined | null>>): string {
  const given = Object.entries(query).filter((pair): pair is [string, string] => typeof pair[1] === 'string');
  return given.length === 0 ? path : `${path}?${new URLSearchParams(given).toString()}`;
}

/** The number that a cell is, or that it links; undefined: it is a text. */
export function numberOf(cell: Cell): number | undefined {
  if (typeof cell !== 'object') return typeof cell === 'number' ? cell : undefined;
  const [part, ...others] = cell.parts;
  return others.length === 0 && typeof part === 'object' && 'href' in part && typeof part.text === 'number'
    ? part.text
    : undefined;
}

/** For each column of a table, whether it holds numbers alone. */
export function numericColumns({ headings, rows }: Table): boolean[] {
  return headings.map(
    (_, column) => rows.length > 0 && rows.every((row) => numberOf(row[column] ?? '') !== undefined),
  );
}

/** A value of a field, as `plan` and `explain` print it. */
export function formatValue(value: unknown): string {
  if (value === null || value === undefined) return '(nothing)';
  return typeof value === 'bigint' ? String(value) : JSON.stringify(value);
}

export function formatValues(values: readonly unknown[] = []): string {
  return values.length === 0 ? '(nothing)' : values.map(formatValue).join(', ');
}

/** `room.name: "Sal 1" → "Aula"`. */
export function describeChange(change: { field: string; old: readonly unknown[]; new: readonly unknown[] }) {
  return `${change.field}: ${formatValues(change.old)} → ${formatValues(change.new)}`;
}

/** `room.name: stays "Aula"; the mirror has "Sal 1" (write: 'changed')`. */
export const describeKept = (kept: KeptField): string =>
  `${kept.field}: stays ${formatValues(kept.there)}; the mirror has ${formatValues(kept.here)} (${nameOfRule(kept)})`;

/** The fields of an object, a row or a reservation, each with its values. */
export const factsOfFields = (fields: readonly { fieldId: string; values: readonly unknown[] }[]): Fact[] =>
  fields.map(({ fieldId, values }) => [fieldId, formatValues(values)]);
