// `TEST_HOP_MS=10 npm run …`: the databases of a test are so many milliseconds away, each way. Unset: they are near.
import { startHop } from './hop.js';

export const DELAY_MS = Number(process.env['TEST_HOP_MS'] ?? 0);

interface Service {
  url: string;
  stop(): Promise<unknown>;
}

/** The service at that distance; stopping it stops both. */
export async function atDistance(service: Service): Promise<Service> {
  if (DELAY_MS === 0) return service;
  const hop = await startHop(service.url, { delayMs: DELAY_MS });
  return {
    url: hop.through(service.url),
    async stop() {
      await hop.close();
      await service.stop();
    },
  };
}
