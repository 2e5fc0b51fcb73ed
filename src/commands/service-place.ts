import type { App } from '../app/app.js';

/** The organization and the address, as messages name the service. */
export function describePlace({ settings: { api } }: App): string {
  return `organization ${api?.organizationId} at ${api?.baseUrl}`;
}
