// Somebody else's server that takes webhooks: it keeps what arrives, and answers as the test says.
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { until } from './wait.js';

export interface Received {
  method: string;
  path: string;
  headers: IncomingHttpHeaders;
  /** As it arrived, for the signature. */
  text: string;
}

export type WebhookReceiver = Awaited<ReturnType<typeof openWebhookReceiver>>;

export async function openWebhookReceiver() {
  const received: Received[] = [];
  /** Statuses of the next answers; then 200. `hang`: no answer. */
  const answers: (number | 'hang')[] = [];
  const server = createServer((request, response) => {
    let text = '';
    request.setEncoding('utf8').on('data', (part: string) => (text += part));
    request.on('end', () => {
      received.push({
        method: request.method ?? '',
        path: request.url ?? '',
        headers: request.headers,
        text,
      });
      const answer = answers.shift() ?? 200;
      if (answer !== 'hang') response.writeHead(answer, { location: '/elsewhere' }).end('ok');
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    received,
    answerNext: (...next: (number | 'hang')[]) => void answers.push(...next),
    /** Bodies so far, as JSON. */
    // oxlint-disable-next-line typescript/no-explicit-any -- whatever was sent
    bodies: (): any[] => received.map(({ text }) => JSON.parse(text)),
    untilReceived: (count: number) =>
      until(() => received.length >= count, { describe: () => `${count} webhooks, not ${received.length}` }),
    async close(): Promise<void> {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
