// Fingerprints: hashes of everything that affects what is planned and sent. A process does not work the runs of a
// configuration with another fingerprint.
import { createHash } from 'node:crypto';

export interface Fingerprints {
  /** Fingerprint of all streams together. */
  configuration: string;
  streams: Readonly<Record<string, string>>;
}

/** Returns a hash of 16 hexadecimal characters, for a queue's name. A function counts by its source text. */
export function fingerprintOf(value: unknown): string {
  const text = JSON.stringify(value, (_, part: unknown) =>
    typeof part === 'function' ? part.toString() : part,
  );
  return createHash('sha256').update(text).digest('hex').slice(0, 16);
}

export function fingerprintsOf(streams: Iterable<{ name: string; declaration: string }>): Fingerprints {
  const ofStreams = [...streams]
    .map(({ name, declaration }) => [name, declaration] as const)
    .toSorted(([a], [b]) => (a < b ? -1 : 1));
  return { configuration: fingerprintOf(ofStreams), streams: Object.fromEntries(ofStreams) };
}

/** Returns the run's streams that this configuration does not have or declares differently. */
export function differingStreams(
  ofRun: Fingerprints['streams'] | null,
  { streams }: Pick<Fingerprints, 'streams'>,
): string[] {
  return Object.entries(ofRun ?? {}).flatMap(([name, print]) => (streams[name] === print ? [] : [name]));
}
