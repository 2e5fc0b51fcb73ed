// Exports of the package `slotsync` for configuration files and dialects.
export { defineDialect } from './dialect/dialect.js';
export type * from './dialect/dialect.js';
export { defineConfig } from './streams/config-schema.js';
export type {
  FieldFunction,
  FieldValue,
  LookupField,
  Row,
  ServiceNames,
  SlotsyncConfig,
} from './streams/config-schema.js';
export type { SourceDeclaration } from './streams/source.js';
