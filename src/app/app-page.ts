// Assembles the operator's page, for a worker and for `slotsync page`, which works no queue.
import type { AppBase } from './app.js';
import { startHttpServer } from '../http/http-server.js';
import { createPage } from '../page/page.js';
import type { Producer } from '../queue/producer.js';

interface PageParts {
  port: number;
  /** Returns the producer, which is opened at the first action that queues something. */
  producer: () => Promise<Producer>;
  /** Returns the usage of the quota. By default, a separate limiter is opened, which takes no slot. */
  quotaUsage?: AppBase['quotaUsage'];
}

export function openPage(app: AppBase, { port, producer, quotaUsage = app.quotaUsage }: PageParts) {
  const { settings, state, timeZone, configuration, mirror, openMirror, log } = app;
  const destination = async () => {
    await app.confirmedState(); // records of one service are never looked up at another
    return app.destination();
  };
  const configuredStreams = async () => (await configuration()).streams.map(({ name }) => name);
  return createPage({
    host: settings.httpHost,
    token: settings.httpToken,
    signIn: settings.httpSignIn,
    trustedProxies: settings.httpTrustedProxies,
    userHeader: settings.httpUserHeader,
    port,
    state,
    timeZone,
    configuration,
    configuredStreams,
    quotaUsage,
    requestsPerSecond: settings.requestsPerSecond,
    mirror,
    openMirror,
    destination,
    producer,
    log,
  });
}

/** Serves only the page. Throws UsageError if the port cannot be opened. */
export async function servePage(
  app: AppBase,
  { portSetting, ...parts }: PageParts & { portSetting?: string },
) {
  const { routes, notFound } = openPage(app, parts);
  const { httpHost: host } = app.settings;
  const { port } = parts;
  const server = await startHttpServer({ host, port, portSetting, routes, notFound, log: app.log });
  return app.own(server, server.close);
}
