// Types of a document: facts arranged for reading, as sections of paragraphs, facts, points and tables. The terminal,
// the page, mails and tickets show the same document. Programs get the facts as JSON instead.

import { quote } from '../situation/commands.js';
import { present } from '../text/format.js';
import { nameOfRule, type KeptField } from '../streams/field-rules.js';

/** Part of a sentence that each surface formats in its own way. A plain `Date` is shown to the second. */
export type Part =
  | string
  | Date
  /** A time that is shown without seconds. */
  | { minute: Date }
  /** A short time: the time of day if `near` is on the day of `now`, otherwise the date. */
  | { near: Date; now: Date }
  /** Name from the configuration, or an error code. */
  | { code: string }
  | { command: string }
  | { status: string }
  /** A link to an address of the operator's page. Other surfaces show only the text. */
  | { text: string | number; href: string };

/** Words that people read instead of the status names of the state. */
export const WORDS_OF_STATUSES: Readonly<Record<string, string>> = {
  dead: 'given up',
  retired: 'deactivated',
};

/** A sentence: a plain string, or parts if the sentence has times, links, commands or statuses. */
export type Text = string | { parts: readonly Part[] };

/** Content of a table cell. Numbers are aligned to the right and grouped by thousands. */
export type Cell = Text | number;

export interface Table {
  headings: readonly string[];
  rows: readonly (readonly Cell[])[];
}

/** Something that an operator can do. The page shows a button instead of the command to users who may act. */
export interface Action {
  command: string;
  /** Address on the operator's page that asks for confirmation. If `isImmediate`, it performs the action. */
  href: string;
  label: string;
  /** Object of the action, such as `run 12`. Tells screen readers what the button is about. */
  about: string;
  /** If true, the page performs the action without asking for confirmation. */
  isImmediate?: boolean | undefined;
}

/** List entry: a fact, its details line by line, and the commands that an operator can run. */
export interface Point {
  /** Chooses the sign that the page draws before the text. The text is complete without the sign. */
  status?: string | undefined;
  text: Text;
  /** Replaces `text` on surfaces that show the point in one line. Default: `text`. */
  line?: Text | undefined;
  /** Time when the fact began. Shown only if the point is shown in one line. */
  since?: { near: Date; now: Date } | undefined;
  /** Number of the concern in the list. `slotsync status <number>` shows the concern's details. */
  number?: number | undefined;
  details?: readonly Text[] | undefined;
  /** Lines that are shown verbatim, such as old and new values side by side. */
  samples?: readonly string[] | undefined;
  /** Next step: what happens automatically, or what an operator has to do. */
  next?: Text | undefined;
  /** Numbers of the progress bar that the page draws. The text names both numbers, too. */
  progress?: { done: number; total: number } | undefined;
  /** Commands for the operator. A command that `next` already names is shown only as a button on the page. */
  commands?: readonly (string | Action)[] | undefined;
}

/** Card of the page that summarizes one stream. */
export interface Card {
  stream: string;
  href: string;
  inSync: number;
  total: number;
  /** Time of the last successful whole sync. Null if no whole sync has succeeded yet. */
  synced: { near: Date; now: Date } | null;
  /** Notes such as `199 held` or `frozen`. `status` chooses the color of the note. */
  badges: readonly { status: string; text: string }[];
  /** Marks of the last nights, oldest first. */
  nights: readonly Mark[];
}

/** Mark for one night on a stream's card. `status` is the status of the run, or `none` if there was no run. */
export interface Mark {
  status: string;
  label: string;
  href?: string | undefined;
}

/** Numbers over time. Only the page draws graphs. */
export interface Graph {
  title: string;
  /** Sentence that says what the graph shows, for surfaces that do not draw graphs. */
  says: Text;
  unit: string;
  points: readonly { label: Text; value: number }[];
  peaks?: readonly number[] | undefined;
  /** Horizontal line at a value, such as the quota. */
  limit?: { value: number; name: string } | undefined;
  /** Labels of the left and the right end of the time axis. */
  ends: readonly [Text, Text];
  /** If true, only the page shows the graph, because a table of the document has the same numbers. */
  isOnlyDrawn?: boolean | undefined;
  /** If true, the graph draws one bar for each point instead of a line. Used for daily totals. */
  isBars?: boolean | undefined;
}

/** Calendar of the bookings of one week. Only the page draws the calendar. */
export interface Week {
  /** Days of the week such as `2026-11-23`, Monday first. */
  days: readonly string[];
  bookings: readonly {
    key: string;
    href: string;
    status: string;
    label: string;
    /** Period of the booking in the mirror. If the period at the service differs, it follows as a second entry. */
    periods: readonly { begin: Date; end: Date }[];
  }[];
}

export type Fact = readonly [name: string, value: Text];

/** Part of a document. Shown in this order: cards, graphs, paragraphs, facts, points, table. Left out if empty. */
export interface Section {
  /** Identifies the section within its document, even if the title changes. */
  id: string;
  title: string;
  /** If true, an operator has to decide or correct something. The page marks the section. */
  isUrgent?: boolean | undefined;
  /** If true, the page shows only the title until the user unfolds the section. */
  isFolded?: boolean | undefined;
  /** If true, the page shows each point in one line, and the details when the user unfolds the point. */
  isOneLine?: boolean | undefined;
  cards?: readonly Card[] | undefined;
  graphs?: readonly Graph[] | undefined;
  week?: Week | undefined;
  paragraphs?: readonly Text[] | undefined;
  facts?: readonly Fact[] | undefined;
  points?: readonly Point[] | undefined;
  /** A table without rows is left out, because headings alone say nothing. */
  table?: Table | undefined;
}

export interface Document {
  title: string;
  /** The state in one line. `status` chooses the color, and `href` leads to the details. */
  headline?: { status: string; text: Text; href?: string | undefined } | undefined;
  /** Paragraphs above the sections that say what the document is about. */
  lead?: readonly Text[] | undefined;
  sections: readonly Section[];
}

/** A list in which false, null and undefined are left out, so that an entry may stand behind its condition. */
export type Sparse<Entry> = readonly (Entry | false | null | undefined)[];

interface Content extends Omit<Section, 'id' | 'title' | 'paragraphs' | 'facts' | 'points'> {
  paragraphs?: readonly (Text | Sparse<Text> | false | null | undefined)[];
  facts?: Sparse<Fact> | undefined;
  points?: readonly (Point | Sparse<Point> | false | null | undefined)[];
}

export function section(id: string, title: string, content: Content = {}): Section {
  const { paragraphs, facts, points } = content;
  return {
    id,
    title,
    ...content,
    paragraphs: paragraphs && present<Text>(...paragraphs),
    facts: facts && present<Fact>(facts),
    points: points && present<Point>(...points),
  };
}

export const filledSections = (sections: readonly Section[]): Section[] =>
  sections.filter(({ cards = [], graphs = [], paragraphs = [], facts = [], points = [], table }) =>
    [cards, graphs, paragraphs, facts, points, table?.rows ?? []].some(({ length }) => length > 0),
  );

/** Table with a row for each stream. Omits columns without numbers above zero. Undefined if no column is left. */
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

/** Builds a sentence: text`Paused since ${date}; to continue: ${{ command }}`. False and null values are left out. */
export function text(strings: TemplateStringsArray, ...values: readonly TextValue[]): Text {
  return joinTexts(
    strings.flatMap((string, index) => [string, values[index]]),
    '',
  );
}

/** Joins texts with a separator. False, null, undefined and empty texts are left out. */
export function joinTexts(texts: readonly TextValue[], separator: string): Text {
  const parts = present<Text | Part>(texts)
    .filter((value) => value !== '')
    .map((value) => (typeof value === 'object' && 'parts' in value ? value.parts : [value]))
    .flatMap((value, index) => (index === 0 || separator === '' ? value : [separator, ...value]));
  return parts.every((part) => typeof part === 'string') ? parts.join('') : { parts };
}

export const addressOfRun = (runId: number): string => `/runs/${runId}`;

/** Keys that are prefixed with `~` in an address: browsers remove `.` and `..`, and no route matches an empty key. */
const NO_PART = /^~*\.{0,2}$/;

const partOf = (key: string): string => encodeURIComponent(NO_PART.test(key) ? `~${key}` : key);

/** Returns the key that a decoded path segment means: removes the prefix that `partOf` added. */
export const keyOfPart = (part: string): string => (NO_PART.test(part) ? part.replace('~', '') : part);

export const addressOfRecord = (stream: string, localKey: string): string =>
  `/records/${encodeURIComponent(stream)}/${partOf(localKey)}`;

export const linkToRun = (runId: number): Part => ({ text: `run ${runId}`, href: addressOfRun(runId) });

export const linkToRecord = (stream: string, localKey: string): Text => ({
  parts: [{ text: `${stream} '${localKey}'`, href: addressOfRecord(stream, localKey) }],
});

export const addressOfBooking = (key: string): string => `/bookings/${partOf(key)}`;

/** Link with the text `booking 4`. The key is quoted for a shell. */
export const linkToBooking = (key: string): Part => ({
  text: `booking ${quote(key)}`,
  href: addressOfBooking(key),
});

export function withQuery(path: string, query: Readonly<Record<string, string | undefined | null>>): string {
  const given = Object.entries(query).filter((pair): pair is [string, string] => typeof pair[1] === 'string');
  return given.length === 0 ? path : `${path}?${new URLSearchParams(given).toString()}`;
}

/** Returns the number in a cell, linked or not. Returns undefined if the cell is text. */
export function numberOf(cell: Cell): number | undefined {
  if (typeof cell !== 'object') return typeof cell === 'number' ? cell : undefined;
  const [part, ...others] = cell.parts;
  return others.length === 0 && typeof part === 'object' && 'href' in part && typeof part.text === 'number'
    ? part.text
    : undefined;
}

export function numericColumns({ headings, rows }: Table): boolean[] {
  return headings.map(
    (_, column) => rows.length > 0 && rows.every((row) => numberOf(row[column] ?? '') !== undefined),
  );
}

/** Formats a field value as `plan` and `explain` print it. */
export function formatValue(value: unknown): string {
  if (value === null || value === undefined) return '(nothing)';
  return typeof value === 'bigint' ? String(value) : JSON.stringify(value);
}

export function formatValues(values: readonly unknown[] = []): string {
  return values.length === 0 ? '(nothing)' : values.map(formatValue).join(', ');
}

/** Returns text such as `room.name: "Sal 1" → "Aula"`. */
export function describeChange(change: { field: string; old: readonly unknown[]; new: readonly unknown[] }) {
  return `${change.field}: ${formatValues(change.old)} → ${formatValues(change.new)}`;
}

/** Returns text such as `room.name: stays "Aula"; the mirror has "Sal 1" (write: 'changed')`. */
export const describeKept = (kept: KeptField): string =>
  `${kept.field}: stays ${formatValues(kept.there)}; the mirror has ${formatValues(kept.here)} (${nameOfRule(kept)})`;

export const factsOfFields = (fields: readonly { fieldId: string; values: readonly unknown[] }[]): Fact[] =>
  fields.map(({ fieldId, values }) => [fieldId, formatValues(values)]);
