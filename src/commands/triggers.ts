import type { App } from '../app/app.js';
import { selectStreams } from '../config/config-file.js';
import { readConnectionFault } from '../connections/postgres-faults.js';
import { UsageError } from '../errors/errors.js';
import { FUNCTION_PREFIX, functionName } from '../streams/trigger-functions.js';
import type { Triggers } from '../mirror/install-triggers.js';
import { print, printJson, printLine, printText } from '../render/print.js';
import { noteAction } from '../state/actions.js';
import { asStateError } from '../state/database.js';
import type { Stream } from '../streams/stream.js';
import { visible, visibleInLine } from '../text/visible-text.js';
import type { CommonOptions, ReasonOption } from './command.js';

const remedy =
  'Keep the state in the mirror’s database (leave STATE_DATABASE_URL unset), give the streams a `cursor`, or report changes by slotsync push or the queue: docs/incremental-sync.md.';

type Given = [app: App, action: string, names: string[], options: CommonOptions & ReasonOption];

export async function triggers(...given: Given): Promise<void> {
  try {
    await changeTriggers(...given);
  } catch (error) {
    throw readConnectionFault(error) ? asStateError(error) : error;
  }
}

async function changeTriggers(...[app, action, names, options]: Given): Promise<void> {
  if (action !== 'install' && action !== 'remove' && action !== 'print')
    throw new UsageError(`triggers takes install, remove or print, not '${action}'`);
  const { db } = await app.state(); // refuses a schema without the inbox
  const actor = await app.actor(options.reason);
  const noted = (name: string) => noteAction(db, actor, 'triggers', { subject: `${action} ${name}` });
  if (action === 'remove') return removeTriggers(await app.triggers(), names, options, noted);
  const streams = selectStreams(await app.configuration(), names);
  const opened = await app.triggers();
  const stateDatabase = await opened.databaseIdentity();
  // A trigger writes to the inbox in the transaction of the change, so mirror and state must be one database.
  if (JSON.stringify(stateDatabase) !== JSON.stringify(await (await app.mirror()).databaseIdentity()))
    throw new UsageError('triggers require mirror and state in one database, but they are in two', {
      remedy,
    });

  const suitable: Stream[] = [];
  const refused: string[] = [];
  for (const stream of streams) {
    const refusal = await opened.refusal(stream);
    if (refusal === undefined) suitable.push(stream);
    else refused.push(refusal);
  }
  if (refused.length > 0 && (names.length > 0 || suitable.length === 0))
    throw new UsageError('triggers cannot be installed on these sources', { faults: refused, remedy });

  if (action === 'print') {
    const statements: string[] = [];
    for (const stream of suitable)
      for (const statement of await opened.print(stream)) statements.push(statement);
    if (options.json) return printJson({ statements, refused });
    return printText(toScript(statements, refused));
  }
  for (const stream of suitable) {
    await opened.install(stream);
    await noted(stream.name);
    const source = 'table' in stream.source ? stream.source.table.join('.') : 'a query';
    if (!options.json) printLine(`${stream.name}: triggers installed on ${source}`);
  }
  print(options, { installed: suitable.map(({ name }) => name), refused }, refused);
}

/** Without this line, psql continues after an error and exits with 0. */
const STOP_AT_ERROR = String.raw`\set ON_ERROR_STOP on`;

/** Returns the statements as one transaction. Throws UsageError if a name has control characters. */
function toScript(statements: readonly string[], refused: readonly string[]): string {
  if (statements.some((statement) => visible(statement) !== statement))
    throw new UsageError('a name has control characters, so its SQL cannot be printed', {
      remedy:
        'Install the triggers as the owner of the table: slotsync triggers install. Or print them with --json.',
    });
  const comments = refused.map((refusal) => `-- ${visibleInLine(refusal)}`);
  const lines = ['BEGIN', ...statements, 'COMMIT'].map((statement) => `${statement};`);
  return [STOP_AT_ERROR, ...comments, ...lines].join('\n');
}

/** Removes triggers, also of streams that are no longer configured. */
async function removeTriggers(
  opened: Triggers,
  names: readonly string[],
  options: CommonOptions,
  noted: (name: string) => Promise<void>,
) {
  const installed = new Set(await opened.list());
  const wanted = names.length > 0 ? names : [...installed].map((name) => name.slice(FUNCTION_PREFIX.length));
  const removed: string[] = [];
  const lines: string[] = [];
  for (const name of wanted) {
    const isInstalled = installed.delete(functionName(name));
    if (isInstalled) {
      await opened.remove(functionName(name));
      await noted(name);
      removed.push(name);
    }
    lines.push(`${name}: ${isInstalled ? 'triggers removed' : 'no triggers to remove'}`);
  }
  print(options, { removed }, lines.length > 0 ? lines : ['No triggers are installed.']);
}
