// The types and fields that streams of a configuration name, for a sandbox that knows exactly these.
import type { Stream } from '../streams/stream.js';
import type { SandboxSchema } from '../sandbox/schema.js';

export function schemaOfStreams(streams: readonly Stream[]): SandboxSchema {
  const typeOf = new Map(streams.map(({ name, type }) => [name, type]));
  const fields = new Map<string, SandboxSchema['fields'][number]>();
  for (const { owned, references } of streams) {
    for (const extId of owned) fields.set(extId, fields.get(extId) ?? { extId });
    for (const { fieldId, stream } of references) {
      const reference = typeOf.get(stream);
      fields.set(fieldId, { extId: fieldId, ...(reference === undefined ? {} : { reference }) });
    }
  }
  const types = [...new Set(streams.map(({ type }) => type))].map((extId) => ({ extId }));
  return { types, fields: [...fields.values()] };
}
