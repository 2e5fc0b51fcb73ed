// What a configuration file imports from 'slotsync'.
export { defineConfig } from './streams/config-schema.js';
export type { FieldFunction, FieldValue, Row, SlotsyncConfig } from './streams/config-schema.js';
