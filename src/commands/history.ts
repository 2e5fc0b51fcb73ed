import type { App } from '../app/app.js';
import { writesSection } from '../documents/record.js';
import { printDocument } from '../render/print-document.js';
import { listWrites } from '../state/history.js';
import { joinKey, shortenKey } from '../streams/local-key.js';
import type { CommonOptions } from './command.js';
import { requireKnownStream } from './require-known.js';

type Options = CommonOptions & { limit: number };

export async function history(app: App, stream: string, parts: string[], options: Options): Promise<void> {
  const { db } = await app.state();
  await requireKnownStream(app, { db }, stream);
  const key = shortenKey(joinKey(parts));
  const writes = await listWrites(db, { stream, localKey: key }, options.limit);
  const lead = writes.length === 0 ? ['No write of it is kept: see `history` of the configuration.'] : [];
  const document = { title: `${stream} '${key}'`, lead, sections: [writesSection(writes)] };
  printDocument(document, { json: options.json, timeZone: await app.timeZone() }, { stream, key, writes });
}
