// The parts of a kept state that its recorder and its test share.
import type { SandboxOptions, Sandbox } from '../../src/sandbox/sandbox.js';

/** The address of the service in a kept state. It is replaced when the state is loaded. */
export const SERVICE = 'http://service.example:8377';

/** The types, fields and objects at the service when a state was kept. */
export interface ServiceContent {
  schema: SandboxOptions['schema'];
  /** In the order of their numbers. */
  objects: Parameters<Sandbox['addObject']>[0][];
}
