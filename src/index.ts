// The exports of 'slotsync' for configuration files.
export { defineConfig } from './streams/config-schema.js';
export type {
  FieldFunction,
  FieldValue,
  LookupField,
  Row,
  ServiceNames,
  SlotsyncConfig,
} from './streams/config-schema.js';
