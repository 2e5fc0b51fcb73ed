// Short texts of everything that decides what is planned and sent, to be compared: a run belongs to the configuration that
// it was started with, and a process with another one leaves it alone.
import { createHash } from 'node:crypto';

/** The fingerprints of the declarations of one configuration. */
export interface Fingerprints {
  /** The fingerprint of all streams together. */
  configuration: string;
  streams: Readonly<Record<string, string>>;
}

/** A text of 16 characters, which may be part of a queue's name. Functions count by their source text. */
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

/** The streams of a run that this configuration declares otherwise, or does not know. */
export function differingStreams(
  ofRun: Fingerprints['streams'] | null,
  { streams }: Pick<Fingerprints, 'streams'>,
): string[] {
  return Object.entries(ofRun ?? {}).flatMap(([name, print]) => (streams[name] === print ? [] : [name]));
}
