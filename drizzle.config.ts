import { defineConfig } from 'drizzle-kit';

export default defineConfig({
  dialect: 'postgresql',
  schema: './src/state/schema.ts',
  out: './migrations',
  schemaFilter: ['slotsync'],
});
