// From the situation to the concerns: what of it needs somebody, or is to be known, as one table. Every surface shows these, so
// that none leaves out what another calls wrong.
import { plural, present } from '../../text/format.js';
import type { Point, Text } from '../document.js';
import type { AlertRules, ConcernOf, Ground, Kind } from './concern.js';
import { PROCESSES } from './processes.js';
import { RECORDS } from './records.js';
import { RUNS } from './runs.js';

/** By severity, concerns are shown in this order. */
const KINDS = { ...PROCESSES, ...RUNS, ...RECORDS };

export type ConcernKind = keyof typeof KINDS;
type FactsOf<Entry> = Entry extends Kind<infer Facts> ? Facts : never;
export type Concern = {
  [Name in ConcernKind]: ConcernOf<Name, FactsOf<(typeof KINDS)[Name]>>;
}[ConcernKind];

export const kindOf = ({ kind }: Pick<Concern, 'kind'>): Kind<unknown> => KINDS[kind];

const SEVERITIES = ['critical', 'action', 'notice'] as const;

/** Everything that concerns somebody, the most severe first. `limits`: as the configuration has them where it says nothing else. */
export function concerns(
  ground: Ground,
  limits: Pick<AlertRules, 'noSuccessHours' | 'inboxMinutes'> = { inboxMinutes: 60 },
): Concern[] {
  return Object.entries<Kind<unknown>>(KINDS)
    .flatMap(([kind, { severity, find }]) =>
      present(find(ground, limits)).map(
        ({ facts, ...found }) =>
          ({ id: kind, kind, severity, since: null, subject: '', facts, commands: [], ...found }) as Concern,
      ),
    )
    .toSorted((a, b) => SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity));
}

/** Tells whether a concern waits for a person's decision or correction. */
export const needsPerson = ({ severity }: Pick<Concern, 'severity'>): boolean => severity !== 'notice';

/** Returns the concern as status, page and report show it to an operator. */
export function concernToPoint(concern: Concern, now: Date): Point {
  const { facts, since, commands } = concern;
  const { point, say } = kindOf(concern);
  const at = since ? { since: { near: since, now } } : {};
  if (point) return { ...point(facts, now), ...at };
  const { details = [], named = [], actions = commands, ...shown } = say(facts, { since, now });
  return { ...shown, ...at, details: [...details, ...named], commands: actions };
}

/** The text for other places: without a key, a host, or what another system said. */
export function concernToNotice(concern: Concern, now: Date): Pick<Point, 'text' | 'details'> {
  const { facts, since } = concern;
  const { text, details = [], next } = kindOf(concern).say(facts, { since, now });
  return { text, details: present<Text>(details, next) };
}

const WIDTH = 80;

/** In one line, what needs a person; undefined: nothing does. */
export function describeWhoseTurn(all: readonly Concern[]): string | undefined {
  const mine = all.filter(needsPerson);
  if (mine.length === 0) return undefined;
  const kinds = [...new Set(mine.map(({ kind }) => kind))];
  const parts = kinds.map((kind) => {
    const ofKind = mine.filter((concern) => concern.kind === kind);
    return kindOf({ kind }).short?.(ofKind.map(({ facts }) => facts)) ?? kind.replaceAll('_', ' ');
  });
  const whole = (shown: number) => {
    const more = parts.length - shown;
    return `${plural(mine.length, 'thing needs', 'things need')} you: ${parts.slice(0, shown).join(', ')}${more > 0 ? `, ${more} more` : ''}`;
  };
  const shown = parts.findLastIndex((_, index) => whole(index + 1).length <= WIDTH) + 1;
  return whole(Math.max(1, shown));
}

/** The number of concerns of each kind and severity, also of kinds without any. */
export function countConcerns(all: readonly Concern[]) {
  const counts = new Map(
    Object.entries(KINDS).map(([kind, { severity }]) => [
      `${kind} ${severity}`,
      { kind, severity, count: 0 },
    ]),
  );
  for (const { kind, severity } of all) {
    const { count = 0 } = counts.get(`${kind} ${severity}`) ?? {};
    counts.set(`${kind} ${severity}`, { kind, severity, count: count + 1 });
  }
  return [...counts.values()];
}
