// Worlds of a test file, over one database, each closed after its test.
import { afterAll, afterEach, beforeAll } from 'vitest';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import {
  createSharedDatabase,
  openWorld,
  type SharedDatabase,
  type World,
  type WorldOptions,
} from './world.js';

/** To be called where tests are declared: it makes the database, and returns what opens a world. */
export function keepWorlds(): (config: SlotsyncConfig, options?: WorldOptions) => Promise<World> {
  let database: SharedDatabase;
  let worlds: World[] = [];
  beforeAll(async () => {
    database = await createSharedDatabase();
  });
  afterEach(async () => {
    for (const world of worlds) await world.close();
    worlds = [];
  });
  afterAll(() => database.drop());

  return async (config, options = {}) => {
    const world = await openWorld(config, { database, ...options });
    worlds.push(world);
    return world;
  };
}
