import type { Actor } from '../../src/state/actions.js';

/** An operator who types. */
export const OPERATOR: Actor = { by: 'ada', via: 'command' };
