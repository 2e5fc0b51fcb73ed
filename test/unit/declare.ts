// Streams for tests, declared as a configuration file declares them.
import { checkConfiguration } from '../../src/config/config-file.js';
import { UsageError } from '../../src/errors/errors.js';
import type { Stream } from '../../src/streams/stream.js';
import type { Declaration } from '../support/campus.js';

export type { Declaration };

/** Returns the error with which a configuration or settings are refused. */
export function refusalOf(work: () => unknown): UsageError {
  try {
    work();
  } catch (error) {
    if (error instanceof UsageError) return error;
    throw error;
  }
  throw new Error('nothing was refused');
}

export const ROOMS: Declaration = {
  from: 'campus.rooms',
  key: 'room_code',
  type: 'room',
  externalId: 'room_{room_code}',
  fields: { 'room.name': 'name' },
};

/** `ROOMS` with some of it declared otherwise. */
export const rooms = (changes: Partial<Declaration> = {}): Declaration => ({ ...ROOMS, ...changes });

/** The stream `name` of a configuration of these streams. */
export function resolve(streams: Record<string, Declaration>, name = 'rooms'): Stream {
  const found = checkConfiguration({ streams }).streams.find((stream) => stream.name === name);
  if (!found) throw new Error(`the test declares no stream ${name}`);
  return found;
}
