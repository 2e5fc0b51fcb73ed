import type { App } from '../app/app.js';
import { concerns, describeWhoseTurn } from '../documents/concerns/concerns.js';
import { runToJson } from '../documents/runs.js';
import { situationDocument, type SituationFacts } from '../documents/situation.js';
import { QUEUES, queueAddress } from '../queue/jobs.js';
import { printJson, printLines } from '../render/print.js';
import { answerToText } from '../render/text.js';
import { columnsOf } from '../process/terminal.js';
import { listVerified, readQuota, readSituation } from '../situation/situation.js';
import { estimateSecondsLeft } from '../situation/run-facts.js';
import { readRequestTotals } from '../state/requests.js';
import { LISTED_KINDS } from '../state/runs/read-runs.js';
import { RUN_KINDS } from '../state/schema.js';
import type { CommonOptions } from './command.js';

interface StatusOptions extends CommonOptions {
  all?: boolean;
  /** Seconds, if given. */
  watch?: number | true;
}

/** The largest share of the time that is spent reading: counting records reads all of them. */
const READING_SHARE = 1 / 10;
const HOUR = 60 * 60 * 1000;

export async function status(app: App, options: StatusOptions): Promise<void> {
  if (options.watch !== undefined) return watchStatus(app, options.watch, options);
  const facts = await readStatus(app, options);
  if (!options.json) return printLines(statusToText(facts, await app.timeZone()).split('\n'));
  const { binding } = facts;
  const queue = binding && queueAddress(app.queueStore(), QUEUES.changes, binding.stateId);
  printJson(statusToJson(facts, queue ?? null));
}

async function watchStatus(app: App, every: number | true, options: StatusOptions): Promise<void> {
  const { requireScreen, watch } = await import('./watch.js');
  const seconds = every === true ? 2 : every;
  requireScreen(options);
  const timeZone = await app.timeZone();
  let last: { facts: SituationFacts; until: number } | undefined;
  const read = async () => {
    const startedAt = performance.now();
    if (!last || startedAt >= last.until) {
      const facts = await readStatus(app, options);
      const now = performance.now();
      last = { facts, until: now + (now - startedAt) / READING_SHARE };
    }
    const { facts } = last;
    return () => statusToText(facts, timeZone).split('\n');
  };
  await watch(app, read, seconds);
}

async function readStatus(app: App, { all }: StatusOptions): Promise<SituationFacts> {
  const { db } = await app.state();
  const loadStreams = async () => (await app.configuration()).streams;
  const facts = await readSituation(db, { loadStreams, kinds: all ? RUN_KINDS : LISTED_KINDS });
  const { requestsPerSecond } = app.settings;
  const { now, runs } = facts;
  const hour = await readRequestTotals(db, new Date(now.getTime() - HOUR), now);
  const secondsLeft = new Map<number, number>();
  for (const underWay of runs.underWay) {
    const seconds = estimateSecondsLeft(underWay, { requestsPerSecond, now });
    if (seconds !== undefined) secondsLeft.set(underWay.run.id, seconds);
  }
  return { ...facts, secondsLeft, hour, quota: await readQuota(facts.binding, app.quotaUsage) };
}

/** Concerns for a person are first, and in one line last: a screen that is too small shows the end. */
export function statusToText(facts: SituationFacts, timeZone: string): string {
  const all = concerns(facts);
  const options = { timeZone, columns: columnsOf(process.stdout) };
  const { lead, sections } = situationDocument(facts, { all });
  const shown = sections.filter(({ id }) => id !== 'processes');
  return `${answerToText({ lead, sections: shown }, options)}\n\n${describeWhoseTurn(all)}`;
}

/** `queue`: where other programs put their jobs. */
function statusToJson(facts: SituationFacts, queue: unknown) {
  const { binding, runs, inbox, configured, secondsLeft, ...rest } = facts;
  const names = inbox.streams.map(({ stream }) => stream);
  return {
    destination: binding,
    ...rest,
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
