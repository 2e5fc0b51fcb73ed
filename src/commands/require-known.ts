// Checks error codes and stream names that an operator types, for commands that read only the state.
import { isKnownCode } from '../errors/error-catalogue.js';
import { UsageError } from '../errors/errors.js';
import { nearestName } from '../text/nearest-name.js';
import type { State } from '../state/database.js';
import { listFailureCodes } from '../state/records/read/failures.js';
import { GATED_OPERATIONS, GATE_REASONS } from '../state/schema.js';
import type { App } from '../app/app.js';
import { listRecordedStreams } from '../state/records/read/count-records.js';

/** Throws UsageError for an unknown error code. The operation or reason of a gate is also accepted. */
export async function requireKnownCode({ db }: Pick<State, 'db'>, code: string | undefined): Promise<void> {
  if (
    code === undefined ||
    isKnownCode(code) ||
    [...GATED_OPERATIONS, ...GATE_REASONS].some((one) => one === code)
  )
    return;
  const codes = await listFailureCodes(db);
  if (codes.includes(code)) return;
  throw new UsageError(`no record has the code '${code}'`, {
    remedy: codes.length === 0 ? 'No record has any.' : describeKnown(code, codes),
  });
}

function describeKnown(name: string, known: readonly string[]): string {
  const near = nearestName(name, known);
  const all = `There are: ${known.join(', ')}.`;
  return near === undefined ? all : `Did you mean ${near}? ${all}`;
}

/** Throws UsageError for a stream without records that is not in the configuration, if that can be read. */
export async function requireKnownStream(
  app: Pick<App, 'configuration'>,
  { db }: Pick<State, 'db'>,
  stream: string | undefined,
): Promise<void> {
  if (stream === undefined) return;
  const recorded = await listRecordedStreams(db);
  if (recorded.includes(stream)) return;
  const configured = (await namesOfConfigured(app)) ?? [];
  if (configured.includes(stream)) return;
  const known = [...new Set([...configured, ...recorded])];
  throw new UsageError(`no stream '${stream}' is in the state or in the configuration`, {
    remedy: known.length === 0 ? 'The state has no records yet.' : describeKnown(stream, known),
  });
}

/** Returns the names of the configured streams, or undefined if the configuration cannot be read. */
export const namesOfConfigured = (app: Pick<App, 'configuration'>): Promise<string[] | undefined> =>
  app.configuration().then(
    ({ streams }) => streams.map(({ name }) => name),
    () => undefined,
  );
