// Serves the operator's page from a process that works no runs. Workers may run elsewhere, or not at all.
import { once } from 'node:events';
import type { App } from '../app/app.js';
import { servePage } from '../app/app-page.js';
import { UsageError } from '../errors/errors.js';
import { printLine } from '../render/print.js';
import { isLoopback } from '../connections/addresses.js';
import type { CommonOptions } from './command.js';
import { untilInterrupted } from './signals.js';

const DEFAULT_PORT = 8080;

export async function page(app: App, options: CommonOptions & { port?: number }): Promise<void> {
  const { httpHost: host, httpPort, httpToken } = app.settings;
  if (httpToken === undefined && !isLoopback(host)) {
    throw new UsageError(
      `HTTP_HOST is ${host}, and HTTP_TOKEN is not set: everybody who reaches the page could read it`,
      {
        remedy: 'Set HTTP_TOKEN, or leave HTTP_HOST out and reach the page as docs/page.md says.',
      },
    );
  }
  await app.state(); // a state that cannot be read is reported now
  await app.timeZone(); // of the lines that follow
  const port = options.port ?? (httpPort === 0 ? DEFAULT_PORT : httpPort);
  const producer = async () => (await app.queue()).producer;
  await untilInterrupted(async (signal) => {
    const server = await servePage(app, { port, portSetting: '--port', producer });
    const name = host.includes(':') ? `[${host}]` : host;
    printLine(`The operator’s page is at http://${name}:${server.port}/ until Ctrl-C.`);
    if (httpToken === undefined) printLine('The page is read-only, because HTTP_TOKEN is not set.');
    if (!signal.aborted) await once(signal, 'abort');
  }, '');
}
