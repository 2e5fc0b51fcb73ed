import type { App } from '../app.js';
import { selectStreams } from '../config-file.js';
import { UsageError } from '../errors.js';
import { FUNCTION_PREFIX, functionName } from '../mirror/trigger-sql.js';
import { print, printLine } from '../report/print.js';
import { describeRemoved, describeSource } from '../report/triggers.js';
import type { Stream } from '../streams/stream.js';
import type { CommonOptions } from './command.js';
import { EXIT } from './exit-code.js';

const OTHER_WAYS =
  'Give the streams a `cursor`, or report changes by slotsync push or the queue: docs/incremental-sync.md.';

export async function triggers(
  app: App,
  action: string,
  names: string[],
  options: CommonOptions,
): Promise<number> {
  if (action !== 'install' && action !== 'remove' && action !== 'print')
    throw new UsageError(`triggers install, remove or print, not '${action}'`);
  await app.state(); // refuses a schema without the inbox
  if (action === 'remove') return removeTriggers(app, names, options);
  const streams = selectStreams(await app.configuration(), names);
  await requireSameDatabase(app);
  const { suitable, refused } = await separate(app, streams, names.length > 0);
  const opened = await app.triggers();
  if (action === 'print') {
    const statements: string[] = [];
    for (const stream of suitable) statements.push(...(await opened.print(stream)));
    const lines = ['BEGIN', ...statements, 'COMMIT'].map((statement) => `${statement};`);
    print(options, { statements, refused }, [...refused.map((refusal) => `-- ${refusal}`), ...lines]);
    return EXIT.done;
  }
  for (const stream of suitable) {
    await opened.install(stream);
    if (!options.json) printLine(`${stream.name}: triggers installed on ${describeSource(stream)}`);
  }
  print(options, { installed: suitable.map(({ name }) => name), refused }, refused);
  return EXIT.done;
}

/** Streams that can have triggers, and why the others cannot. Throws UsageError when a named one cannot. */
async function separate(app: App, streams: readonly Stream[], isNamed: boolean) {
  const opened = await app.triggers();
  const suitable: Stream[] = [];
  const refused: string[] = [];
  for (const stream of streams) {
    const refusal = await opened.refusal(stream);
    if (refusal === undefined) suitable.push(stream);
    else refused.push(refusal);
  }
  if (refused.length > 0 && (isNamed || suitable.length === 0)) {
    throw new UsageError('triggers cannot be installed on these sources', {
      faults: refused,
      remedy: OTHER_WAYS,
    });
  }
  return { suitable, refused };
}

/** A trigger writes to the inbox in the transaction of the change: both must be in one database. */
async function requireSameDatabase(app: App): Promise<void> {
  const [state, mirror] = [
    await (await app.triggers()).databaseIdentity(),
    await (await app.mirror()).databaseIdentity(),
  ];
  if (JSON.stringify(state) === JSON.stringify(mirror)) return;
  throw new UsageError('triggers need mirror and state in one database, and these are two', {
    remedy: OTHER_WAYS,
  });
}

/** Includes those of streams that are no longer configured. */
async function removeTriggers(app: App, names: readonly string[], options: CommonOptions): Promise<number> {
  const opened = await app.triggers();
  const installed = await opened.list();
  const wanted =
    names.length > 0
      ? names.map((name) => ({ name, triggerFunction: functionName(name) }))
      : installed.map((name) => ({ name: name.slice(FUNCTION_PREFIX.length), triggerFunction: name }));
  const removed: string[] = [];
  for (const { name, triggerFunction } of wanted) {
    if (!installed.includes(triggerFunction)) continue;
    await opened.remove(triggerFunction);
    removed.push(name);
  }
  print(
    options,
    { removed },
    describeRemoved(
      wanted.map(({ name }) => name),
      removed,
    ),
  );
  return EXIT.done;
}
