// The demo: a real PostgreSQL with a sample university, a sandbox with a strict quota, and the commands that an
// engineer would type. The demo removes everything afterwards.
import { randomBytes } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import postgres from 'postgres';
import { createCommands } from './demo-commands.js';
import { tellStory } from './demo-story.js';
import { findFreePort, startEmbeddedPostgres } from './embedded-postgres.js';
import { universitySchema } from './sync.config.js';
import { loadUniversity } from './university.js';
import { startSandbox } from '../sandbox/sandbox.js';
import { printJson, printLine } from '../render/print.js';

export interface DemoOptions {
  keep?: boolean;
  json?: boolean;
  seed: number;
}

const RATE = 20;
const LATENCY_MS = 40;
/** Runs the demo and prints it. `cli` is this program's entry file. Returns true if every result was as expected. */
export async function playDemo(cli: string, { keep, json = false, seed }: DemoOptions): Promise<boolean> {
  const say = json ? () => undefined : printLine;
  const closers: (() => Promise<unknown>)[] = [];
  const interrupted = new AbortController();
  const onSignal = () => interrupted.abort();
  process.on('SIGINT', onSignal);
  process.on('SIGTERM', onSignal);
  try {
    say(
      `A sample university in a PostgreSQL of its own, and a sandbox that simulates the service: ${RATE} requests in any second, ${LATENCY_MS} ms each.`,
    );
    const server = await startEmbeddedPostgres();
    closers.push(server.stop);
    const url = await server.createDatabase('university');
    const sql = postgres(url, { max: 1, onnotice: () => undefined });
    closers.push(() => sql.end({ timeout: 1 }));
    await loadUniversity(sql, { seed });
    const sandbox = await startSandbox({
      rate: RATE,
      window: 'sliding',
      latencyMs: LATENCY_MS,
      jitterMs: LATENCY_MS / 2,
      schema: universitySchema,
    });
    closers.push(() => sandbox.close());

    const settings = {
      MIRROR_DATABASE_URL: url,
      STATE_DATABASE_URL: url,
      API_BASE_URL: sandbox.url,
      API_KEY: 'sandbox-key',
      API_ORGANIZATION_ID: 'demo',
      API_REQUESTS_PER_SECOND: String(RATE),
      HTTP_TOKEN: randomBytes(12).toString('hex'),
      TIMEZONE: 'Europe/Stockholm',
      SLOTSYNC_CONFIG: fileURLToPath(new URL('./sync.config.js', import.meta.url)),
    };
    const commands = createCommands({ cli, settings, signal: interrupted.signal });
    closers.push(commands.stop);

    const httpPort = await findFreePort();
    const story = await tellStory({ sql, sandbox, commands, say, httpPort, rate: RATE });
    const { steps, checks } = story;
    const failed = Object.entries(checks).flatMap(([what, isFine]) => (isFine ? [] : [what]));
    const isExpected = failed.length === 0;
    if (json) {
      const kept = keep ? { ...settings, HTTP_PORT: String(httpPort) } : undefined;
      printJson({
        fine: isExpected,
        failed,
        allowed: RATE,
        mostInAnySecond: story.most,
        steps,
        settings: kept,
      });
    }
    say();
    say(isExpected ? 'Every result is as expected.' : `Not as expected: ${failed.join(', ')}.`);
    if (keep) {
      say();
      say(`The demo runs until Ctrl-C. The operator's page: http://127.0.0.1:${httpPort}/`);
      say(`  Token for its buttons: ${settings.HTTP_TOKEN}`);
      say(`Requests that the service received: ${sandbox.url}/sandbox/summary`);
      say('To use the commands, enter in another terminal:');
      say();
      for (const [name, value] of Object.entries(settings))
        if (name !== 'HTTP_TOKEN') say(`  export ${name}='${value}'`);
      say(`  node ${cli} status --watch`);
      await commands.untilInterrupted();
    } else {
      say('To look around: npx slotsync demo --keep');
      say('To sync your own database: README.md, "Five minutes to your own database"');
    }
    return isExpected;
  } catch (error) {
    if (!interrupted.signal.aborted) throw error;
    say();
    say('Interrupted.');
    return false;
  } finally {
    process.off('SIGINT', onSignal);
    process.off('SIGTERM', onSignal);
    for (const close of closers.reverse()) await close();
  }
}
