import { expect, test } from 'vitest';
import { checkConfiguration } from '../../src/config/config-file.js';
import { universityConfig, universitySchema } from '../../src/demo/sync.config.js';

test('the sample university maps only fields that the service defines', () => {
  for (const stream of checkConfiguration(universityConfig).streams) {
    const defined = universitySchema.fields
      .filter(({ type }) => type === stream.type)
      .map(({ extId }) => extId);
    expect(defined).toEqual(expect.arrayContaining([...stream.owned]));
  }
});
