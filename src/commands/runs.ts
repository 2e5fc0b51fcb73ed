import type { App } from '../app/app.js';
import { UsageError } from '../errors/errors.js';
import { runDocument, runsDocument, runToJson } from '../documents/runs.js';
import { listRunsSoFar, readRunFacts } from '../situation/run-facts.js';
import { printDocument } from '../render/print-document.js';
import { readClock } from '../state/database.js';
import { findRun, LISTED_KINDS } from '../state/runs/read-runs.js';
import { RUN_KINDS, type RunKind } from '../state/schema.js';
import type { CommonOptions } from './command.js';

interface RunsOptions extends CommonOptions {
  limit: number;
  kind?: string;
  all?: boolean;
}

export async function runs(app: App, id: number | undefined, options: RunsOptions): Promise<void> {
  const { db } = await app.state();
  const shown = { json: options.json, timeZone: await app.timeZone() };
  if (id !== undefined) {
    const facts = await readRunFacts(db, await findRun(db, id));
    const { run, gates } = facts;
    printDocument(runDocument(facts, await readClock(db)), shown, { run: runToJson(run), gates });
    return;
  }
  const listed = await listRunsSoFar(db, options.limit, readKinds(options));
  printDocument(runsDocument(listed, options.kind), shown, { runs: listed.map(runToJson) });
}

function readKinds({ kind, all }: RunsOptions): readonly RunKind[] {
  if (kind === undefined) return all ? RUN_KINDS : LISTED_KINDS;
  const known = RUN_KINDS.find((each) => each === kind);
  if (known) return [known];
  throw new UsageError(`--kind takes one of ${RUN_KINDS.join(', ')}, not '${kind}'`);
}
