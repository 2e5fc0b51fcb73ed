// The service without its quota, for benches of everything else.
import type { Limiter } from '../src/destination/quota/limiter.js';

/** Everything is granted at once: what is measured is the rest. */
export const UNLIMITED: Limiter = {
  take: async () => ({ usable: () => true, release: async () => undefined }),
  throttled: async () => undefined,
  usage: () => Promise.reject(new Error('there is no quota')),
  close: async () => undefined,
};

/** How the played service is spoken to. */
export function apiOf(baseUrl: string) {
  return { baseUrl, key: 'sandbox-key', organizationId: 'demo', region: 'EU_EES' };
}
