// `take`: lets the next write overwrite fields whose rules otherwise keep values that people entered at the service.
import type { App } from '../app/app.js';
import { selectStream } from '../config/config-file.js';
import { UsageError } from '../errors/errors.js';
import { print } from '../render/print.js';
import { actAs, toRecords } from '../state/actions.js';
import { takeFields } from '../state/records/retry-records.js';
import { takeText } from '../streams/field-rules.js';
import { type CommonOptions, type ReasonOption, EXIT } from './command.js';

export async function take(
  app: App,
  name: string,
  key: string,
  named: string[],
  options: CommonOptions & ReasonOption,
): Promise<number> {
  const { rules } = selectStream(await app.configuration(), name);
  const ruled = [...rules.keys()];
  if (ruled.length === 0)
    throw new UsageError(`no field of ${name} keeps values of the service`, {
      remedy: `Each write sends the mirror's values. For an object that was changed there: slotsync verify ${name} --repair`,
    });
  const unknown = named.filter((field) => !rules.has(field));
  if (unknown.length > 0)
    throw new UsageError(`no rule keeps ${unknown.map((field) => `'${field}'`).join(', ')} of ${name}`, {
      remedy: `Fields with a rule: ${ruled.join(', ')}.`,
    });
  const fields = named.length === 0 ? ruled : named;
  const { db } = await app.state();
  const record = { stream: name, localKey: key };
  const taken = await actAs(
    db,
    await app.actor(options.reason),
    'take',
    (tx) => takeFields(tx, record, takeText(fields)),
    (result) => (result === 'taken' ? toRecords([record]) : undefined),
  );
  const answers = {
    taken: `${name} '${key}': the next write takes ${fields.join(', ')} from the mirror. It is in the inbox: a worker processes it, or slotsync sync ${name}`,
    'being written': `${name} '${key}' is being written, so nothing was changed. Try again in a minute.`,
    'not accepted': `${name} '${key}' has no accepted object, so nothing was changed. To see why: slotsync explain ${name} '${key}'`,
  };
  print(options, { stream: name, key, fields, result: taken }, [answers[taken]]);
  return taken === 'taken' ? EXIT.done : EXIT.failed;
}
