// Open pages are brought up to date by server-sent events: one reader for all of them, which sends the sections that have
// changed. While no page is open, nothing is read.
import { codeOf } from '../errors/errors.js';
import type { EventClient } from '../http/http-server.js';
import { repeat } from '../process/lifecycle.js';
import type { Logger } from '../process/logger.js';
import { renderParts } from './frame.js';
import { PageNotFound, type Rendered } from './view.js';

const EVERY_MS = 1000;
/** Pages that are kept up to date at once, each a connection. */
const MOST_CLIENTS = 20;
/** Then the browser connects again. */
const LONGEST_MS = 10 * 60 * 1000;
/** The interval in which sessions are checked: a page of one that has ended gets nothing more. */
const LOOK_EVERY_MS = 500;
/** The interval in which a page hears that it is up to date, which also shows a connection that is broken. */
const BEAT_MS = 15_000;

/** A page that is kept up to date. */
interface LivePage {
  render: () => Promise<Rendered>;
  /** Whether its reader may still read it. */
  isAllowed: () => boolean;
}

interface Client extends LivePage {
  events: EventClient;
  /** The last text of each part. */
  sent: Map<string, string>;
  since: number;
  beatAt: number;
}

export function createLive({ log }: { log: Logger }) {
  const clients = new Set<Client>();
  const closing = new AbortController();
  const loop = repeat(round, {
    everyMs: EVERY_MS,
    signal: closing.signal,
    onError: (error) => log.debug({ code: codeOf(error) }, 'page not brought up to date'),
  });

  // Not in a round, which a reading holds up.
  const watch = setInterval(() => {
    for (const { events, isAllowed } of clients) {
      if (isAllowed()) continue;
      events.send(JSON.stringify({ reload: true })); // shows who may read it now
      events.end();
    }
  }, LOOK_EVERY_MS);

  /** All at the same time: a page whose reading takes long does not keep the others waiting one after the other. */
  async function round(): Promise<void> {
    const updates = [...clients].map(async (client) => {
      if (performance.now() - client.since > LONGEST_MS) client.events.end();
      else await update(client).catch((error: unknown) => reportFailure(client, error));
    });
    await Promise.all(updates);
  }

  /** A page that cannot be read, such as of a run that is not kept any more, says so, and holds up no other. */
  function reportFailure(client: Client, error: unknown): void {
    log.debug({ code: codeOf(error) }, 'page not brought up to date');
    client.beatAt = -Infinity; // says that it is up to date again as soon as it is
    const problem = error instanceof PageNotFound ? error.message : `it cannot be read (${codeOf(error)}).`;
    client.events.send(JSON.stringify({ problem }));
  }

  async function update(client: Client): Promise<void> {
    const { events, render, sent } = client;
    for (const [id, text] of renderParts(await render())) {
      if (sent.get(id) === text) continue;
      sent.set(id, text);
      events.send(JSON.stringify({ id, html: text }));
    }
    if (performance.now() - client.beatAt < BEAT_MS) return;
    client.beatAt = performance.now();
    events.send('{}');
  }

  return {
    isFull: () => clients.size >= MOST_CLIENTS,

    /** Brings a page up to date until either side ends. */
    add(events: EventClient, page: LivePage): void {
      const now = performance.now();
      const client = { events, ...page, sent: new Map<string, string>(), since: now, beatAt: -Infinity };
      clients.add(client);
      events.gone.addEventListener('abort', () => clients.delete(client), { once: true });
      loop.wake();
    },

    async close(): Promise<void> {
      closing.abort();
      clearInterval(watch);
      await loop.ended;
    },
  };
}
