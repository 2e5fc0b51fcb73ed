// For commands that read the state alone, without the configuration: the streams that it has records of.
import type { App } from '../app/app.js';
import { UsageError } from '../errors/errors.js';
import type { State } from '../state/database.js';
import { listRecordedStreams } from '../state/records/read/count-records.js';
import { describeKnown } from './require-known-code.js';

/** Throws UsageError for a stream that has no record and is not in the configuration, if that can be read. */
export async function requireKnownStream(
  app: Pick<App, 'configuration'>,
  { db }: Pick<State, 'db'>,
  stream: string | undefined,
): Promise<void> {
  if (stream === undefined) return;
  const recorded = await listRecordedStreams(db);
  if (recorded.includes(stream)) return;
  const configured = await app.configuration().then(
    ({ streams }) => streams.map(({ name }) => name),
    (): string[] => [],
  );
  if (configured.includes(stream)) return;
  const known = [...new Set([...configured, ...recorded])];
  throw new UsageError(`no stream '${stream}' is in the state or in the configuration`, {
    remedy: known.length === 0 ? 'The state has no records yet.' : describeKnown(stream, known),
  });
}
