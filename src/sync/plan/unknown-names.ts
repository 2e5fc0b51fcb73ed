// Checks, before the first write of a run, that the service knows all configured types and fields. Otherwise one wrong
// name would make the service refuse every record.
import type { Destination } from '../../destination/destination.js';
import type { Context } from '../../destination/client.js';
import { SlotsyncError } from '../../errors/errors.js';
import { nearestName } from '../../text/nearest-name.js';
import type { Stream } from '../../streams/stream.js';

/**
 * Describes the configured types and fields that the service does not know, each with the most similar known name.
 * Sends two requests if all are known.
 */
export async function findUnknownNames(
  destination: Destination,
  streams: readonly Stream[],
  context: Context,
) {
  const types = namesBy(streams, ({ objectTypes }) => [...objectTypes]);
  const fields = namesBy(streams, ({ owned, retireFields }) => [
    ...new Set([...owned, ...retireFields.keys()]),
  ]);
  return [
    ...(await findUnknown('type', types, destination.findTypes, context)),
    ...(await findUnknown('field', fields, destination.findFields, context)),
  ];
}

/** Describes configured reservation fields that the service does not know. */
export function findUnknownReservationFields(
  destination: Destination,
  fields: readonly string[],
  context: Context,
) {
  const names = new Map(fields.map((field) => [field, ['reservations.fields']]));
  return findUnknown('field', names, destination.findFields, context);
}

export type NameCheck = ReturnType<typeof createNameCheck>;

/** Milliseconds for which a successful check stays valid. */
const KNOWN_FOR = 60 * 60 * 1000;

/** Remembers for an hour which streams have been checked. `now`: milliseconds of a monotonic clock. */
export function createNameCheck(destination: Destination, now: () => number = () => performance.now()) {
  const known = new Map<bigint, number>();
  return {
    /** Throws SlotsyncError `configuration`, with all unknown types and fields. */
    async requireKnownNames(streams: readonly Stream[], context: Context): Promise<void> {
      const asked = streams.filter(
        ({ fingerprint }) => now() - (known.get(fingerprint) ?? -Infinity) > KNOWN_FOR,
      );
      if (asked.length === 0) return;
      const unknown = await findUnknownNames(destination, asked, context);
      if (unknown.length > 0) {
        throw new SlotsyncError('configuration', unknown.join('; '), {
          remedy:
            'Nothing was written. Correct the names in the configuration, or create them at the service.',
        });
      }
      for (const { fingerprint } of asked) known.set(fingerprint, now());
    },
  };
}

async function findUnknown(
  what: 'type' | 'field',
  names: Map<string, string[]>,
  find: Destination['findTypes'],
  context: Context,
) {
  if (names.size === 0) return [];
  const known = new Set((await find(context, [...names.keys()])).map(({ extId }) => extId));
  const unknown = [...names].filter(([name]) => !known.has(name));
  if (unknown.length === 0) return [];
  const all = (await find(context)).flatMap(({ extId }) => extId ?? []);
  return unknown.map(([name, places]) => {
    const near = nearestName(name, all);
    const meant = near === undefined ? '' : `; did you mean '${near}'?`;
    return `the service knows no ${what} '${name}' (${places.join(', ')})${meant}`;
  });
}

/** Returns the types or fields that streams use, each with the paths of the streams in the configuration. */
function namesBy(streams: readonly Stream[], namesOf: (stream: Stream) => readonly string[]) {
  const names = new Map<string, string[]>();
  for (const stream of streams)
    for (const name of namesOf(stream))
      names.set(name, [...(names.get(name) ?? []), `streams.${stream.name}`]);
  return names;
}
