import type { App } from '../app/app.js';
import { concerns } from '../documents/concerns/concerns.js';
import { runToJson } from '../documents/runs.js';
import { describeUnderWay } from '../documents/overview.js';
import { findPart, situationDocument, type SituationFacts } from '../documents/situation.js';
import { UsageError, messageOf } from '../errors/errors.js';
import { QUEUES, queueAddress } from '../queue/jobs.js';
import { printJson, printLines, openScreen } from '../render/print.js';
import { printDocument } from '../render/print-document.js';
import { answerToText, contentToText, plain } from '../render/text.js';
import { columnsOf, rowsOf, canDraw } from '../process/terminal.js';
import { readHistory } from '../situation/history.js';
import { listVerified, readQuota, readSituation } from '../situation/situation.js';
import { estimateSecondsLeft } from '../situation/run-facts.js';
import { LISTED_KINDS } from '../state/runs/read-runs.js';
import { RUN_KINDS } from '../state/schema.js';
import { plural, present, formatTime } from '../text/format.js';
import type { CommonOptions } from './command.js';
import { repeat } from '../process/lifecycle.js';

interface StatusOptions extends CommonOptions {
  all?: boolean;
  full?: boolean;
  /** Seconds between two reads of the state. True if the option has no number. */
  watch?: number | true;
}

/** Maximum share of the time for which `--watch` queries the state, because the queries count all records. */
const READING_SHARE = 1 / 10;
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
/** Keys that close the screen. Ctrl-C is included, because a terminal in raw mode sends no signal for it. */
const ENDING = ['q', 'Q', '\u0003'];

/** `part` has the words of the argument: the number or name of a concern, or the name of a section. */
export async function status(app: App, part: readonly string[], options: StatusOptions): Promise<void> {
  const { watch } = options;
  if (watch !== undefined) return watchStatus(app, watch === true ? 2 : watch, options);
  const facts = await readStatus(app, options);
  const timeZone = await app.timeZone();
  if (part.length > 0 && !options.json) {
    const sections = findPart(facts, part.join(' '));
    if (sections.length > 0) return printDocument({ sections }, { timeZone }, facts);
    throw new UsageError(`nothing has the number or name '${part.join(' ')}' now`, {
      remedy:
        'To list the concerns and their numbers: slotsync status. To show everything: slotsync status --full',
    });
  }
  if (!options.json) return printLines(chooseText(options)(facts, timeZone).split('\n'));
  const { binding } = facts;
  const queue = binding && queueAddress(app.queueStore(), QUEUES.changes, binding.stateId);
  printJson(statusToJson(facts, queue ?? null));
}

/** Draws the status on a screen every `everySeconds`, until q, Ctrl-C or a signal ends the screen. */
async function watchStatus(app: App, everySeconds: number, options: StatusOptions): Promise<void> {
  requireScreen(options);
  const timeZone = await app.timeZone();
  const ended = new AbortController();
  const end = () => ended.abort();
  const { stdin, stdout } = process;
  const screen = openScreen();
  let describe: () => readonly string[] = () => [];
  let last = 'reading the state …';
  let readAgainAt = 0;

  function draw(): void {
    screen.draw(describe(), last);
  }
  function onKeys(keys: Buffer): void {
    if (ENDING.some((key) => keys.includes(key))) end();
  }
  async function read(): Promise<void> {
    const startedAt = performance.now();
    if (startedAt >= readAgainAt) {
      const facts = await readStatus(app, options);
      const now = performance.now();
      readAgainAt = now + (now - startedAt) / READING_SHARE;
      describe = () => chooseText(options)(facts, timeZone).split('\n');
    }
  }
  const hasKeys = stdin.isTTY;
  if (hasKeys) stdin.setRawMode(true).resume().on('data', onKeys);
  stdout.on('resize', draw);
  SIGNALS.forEach((name) => process.on(name, end));
  try {
    const loop = repeat(
      async () => {
        // An error is shown in place of the lines, because the next read may succeed.
        await read().catch((error: unknown) => {
          describe = () => [`The state cannot be read now: ${messageOf(error)}`];
        });
        last = `${formatTime(new Date(), timeZone)}, read every ${everySeconds} s; q ends it`;
        if (!ended.signal.aborted) draw();
      },
      { everyMs: everySeconds * 1000, signal: ended.signal, onError: end },
    );
    await loop.ended;
  } finally {
    SIGNALS.forEach((name) => process.off(name, end));
    stdout.off('resize', draw);
    if (hasKeys) stdin.off('data', onKeys).pause().setRawMode(false);
    screen.close();
  }
}

/** Throws UsageError if a screen cannot be drawn on standard output. */
function requireScreen({ json }: StatusOptions): void {
  if (json)
    throw new UsageError('--watch draws a screen, and --json prints a document', {
      remedy: 'Leave one of them out. To read the state repeatedly: slotsync status --json',
    });
  if (!canDraw(process.stdout))
    throw new UsageError('--watch draws a screen, and standard output is no terminal', {
      remedy: 'Leave --watch out, or run it in a terminal.',
    });
}

const chooseText = ({ full }: StatusOptions) => (full ? statusToText : glanceToText);

async function readStatus(app: App, { all }: StatusOptions): Promise<SituationFacts> {
  const { db } = await app.state();
  const loadStreams = async () => (await app.configuration()).streams;
  const facts = await readSituation(db, { loadStreams, kinds: all ? RUN_KINDS : LISTED_KINDS });
  const { requestsPerSecond } = app.settings;
  const { now, runs } = facts;
  const history = await readHistory(db, { now, timeZone: await app.timeZone() });
  const secondsLeft = new Map<number, number>();
  for (const underWay of runs.underWay) {
    const seconds = estimateSecondsLeft(underWay, { requestsPerSecond, now });
    if (seconds !== undefined) secondsLeft.set(underWay.run.id, seconds);
  }
  return {
    ...facts,
    secondsLeft,
    history,
    requestsPerSecond,
    quota: await readQuota(facts.binding, app.quotaUsage),
  };
}

/** Text of `slotsync status --full`: the state in one line, followed by all sections with details. */
export function statusToText(facts: SituationFacts, timeZone: string): string {
  const { sections, ...document } = situationDocument(facts);
  const whole = sections.map((section) => ({ ...section, isOneLine: false }));
  const shown = whole.filter(({ id }) => id !== 'graphs');
  return answerToText({ ...document, sections: shown }, { timeZone, columns: columnsOf(process.stdout) });
}

/** Text of `slotsync status`: the state, streams and concerns in one line each. Fits on one screen. */
export function glanceToText(
  facts: SituationFacts,
  timeZone: string,
  { columns = columnsOf(process.stdout), rows = rowsOf(process.stdout) } = {},
): string {
  const { headline, sections } = situationDocument(facts);
  const linesOf = (wanted: string) =>
    sections.flatMap(({ id, ...section }) =>
      id === wanted ? contentToText(section, { timeZone, columns }) : [],
    );
  const notices = linesOf('notices');
  const numbered = linesOf('attention');
  const underWay = headline?.status === 'running' ? undefined : describeUnderWay(facts);
  const schedules = present(facts.nightly, facts.schedules);
  const next = sections.find(({ id }) => id === 'under-way')?.paragraphs?.[0] ?? '';
  const last = [
    ...(schedules.length > 0 ? [plain(next, timeZone)] : []),
    ...(underWay === undefined ? [] : [plain(underWay, timeZone)]),
    ...(notices.length > 0 ? [`${plural(notices.length, 'notice')}: slotsync status notices`] : []),
    `${numbered.length > 0 ? 'Details: slotsync status <number>. ' : ''}Everything: slotsync status --full`,
  ];
  // Six lines are for the prompt, the first line, the headings, and the empty lines between blocks.
  const room = rows - last.length - 6;
  const attention = fold(numbered, Math.max(3, room - 4), 'concern');
  const [heading, ...streams] = linesOf('streams');
  const cards =
    heading === undefined ? [] : [heading, ...fold(streams, Math.max(2, room - attention.length), 'stream')];
  return [headline ? [plain(headline.text, timeZone)] : [], cards, attention, last]
    .filter(({ length }) => length > 0)
    .map((block) => block.join('\n'))
    .join('\n\n');
}

/** Returns at most the given number of lines. The last line counts the lines that are left out. */
function fold(lines: readonly string[], most: number, what: string): readonly string[] {
  if (lines.length <= most) return lines;
  return [...lines.slice(0, most - 1), `   … and ${plural(lines.length - most + 1, `more ${what}`)}`];
}

/** `queue` is the address of the queue to which other programs add changed keys as jobs. */
function statusToJson(facts: SituationFacts, queue: unknown) {
  const { binding, runs, inbox, configured, secondsLeft, history, ...rest } = facts;
  const names = inbox.streams.map(({ stream }) => stream);
  return {
    destination: binding,
    ...rest,
    hour: history?.hour,
    nights: history?.nights,
    concerns: concerns(facts),
    unfinished: runs.underWay.map((underWay) => ({
      ...underWay,
      secondsLeft: secondsLeft?.get(underWay.run.id),
    })),
    runs: runs.latest.map(runToJson),
    verified: listVerified(facts),
    inbox: { ...inbox, unknown: configured && names.filter((name) => !configured.includes(name)), queue },
  };
}
