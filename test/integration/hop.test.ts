// The network that tests and benches put between a program and its servers.
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import postgres from 'postgres';
import pg from 'pg';
import { Redis } from 'ioredis';
import { afterEach, describe, expect, it } from 'vitest';
import { startHop } from '../support/hop.js';
import { startCountingHop } from '../support/round-trips.js';
import { createEmptyDatabase, redisUrl } from '../support/services.js';
import { until } from '../support/wait.js';

let ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.reverse()) await end();
  ends = [];
});

/** A server that answers what it gets, and a client of it through a hop. */
async function openEcho(delayMs = 0) {
  const server = createServer((socket) => void socket.on('error', () => undefined).pipe(socket));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  ends.push(() => server.close());
  let underWay = '';
  const onConnection = () => (chunk: Buffer) => void (underWay += chunk.toString());
  const { port: target } = server.address() as AddressInfo;
  const hop = await startHop(`tcp://127.0.0.1:${target}`, { delayMs, onConnection });
  ends.push(() => hop.close());
  const port = Number(new URL(hop.through('tcp://127.0.0.1:1')).port);
  const untilUnderWay = (text: string) =>
    until(() => underWay === text, { describe: () => `${text} under way, not ${underWay}` });
  return { hop, untilUnderWay, ...(await openClient(port)), openClient: () => openClient(port) };
}

async function openClient(port: number) {
  const client: Socket = connect(port, '127.0.0.1');
  let received = '';
  const events: string[] = [];
  client.setEncoding('utf8').on('data', (text: string) => (received += text));
  client.on('error', ({ message }) => events.push(message)).on('close', () => events.push('close'));
  await once(client, 'connect');
  ends.push(() => client.destroy());
  const untilReceived = (text: string) =>
    until(() => received === text, { describe: () => `${text}, not ${received}` });
  return { client, events, received: () => received, untilReceived };
}

describe('a hop', () => {
  it('delays each direction, and not one chunk behind the other', async () => {
    const delayMs = 400;
    const { client, untilReceived } = await openEcho(delayMs);
    const startedAt = performance.now();
    let sent = '';
    for (let at = 0; at < 40; at++) {
      sent += `${at},`;
      client.write(`${at},`);
      await turn();
    }
    await untilReceived(sent);
    const tookMs = performance.now() - startedAt;
    expect(tookMs).toBeGreaterThanOrEqual(2 * delayMs - 2);
    expect(tookMs).toBeLessThan((40 * delayMs) / 2);
  });

  it('keeps the order when its delay becomes shorter', async () => {
    const { hop, client, untilUnderWay, untilReceived } = await openEcho(300);
    client.write('first,');
    await untilUnderWay('first,');
    hop.setShape({ delayMs: 0 });
    client.write('second');
    await untilReceived('first,second');
  });

  it('passes the end of a connection on, behind what was sent before it', async () => {
    const { client, events, received } = await openEcho(50);
    client.end('last');
    await until(() => events.includes('close'), { describe: 'the end' });
    expect([received(), events]).toEqual(['last', ['close']]);
  });

  it('passes everything on after a stall', async () => {
    const { hop, client, untilReceived } = await openEcho();
    const startedAt = performance.now();
    hop.stall(300);
    client.write('late');
    await untilReceived('late');
    expect(performance.now() - startedAt).toBeGreaterThanOrEqual(298);
  });

  it('that is silent passes nothing on and closes nothing, until it speaks', async () => {
    const echo = await openEcho();
    const { hop, client, events, received, untilReceived } = echo;
    hop.silence();
    client.write('kept,');
    await echo.untilUnderWay('kept,');
    const another = await echo.openClient();
    another.client.end('and ended');
    await echo.untilUnderWay('kept,and ended');
    expect([received(), events, another.events]).toEqual(['', [], []]);
    hop.speak();
    await untilReceived('kept,');
    await another.untilReceived('and ended');
    await until(() => another.events.includes('close'), { describe: 'the end' });
  });

  it('that has forgotten a connection passes nothing of it on, closes nothing, and takes new ones', async () => {
    const { hop, client, events, received, untilReceived, openClient: openAnother } = await openEcho();
    client.write('before');
    await untilReceived('before');
    hop.forget();
    client.write(' and after');
    const another = await openAnother();
    another.client.write('another');
    await another.untilReceived('another');
    expect([received(), events]).toEqual(['before', []]);
  });

  it('ends connections amid what their clients are sent, at the byte that was said', async () => {
    const { hop, client, events, received, untilReceived } = await openEcho();
    client.write('before');
    await untilReceived('before');
    hop.cutAfter(4);
    client.write(', amid');
    await until(() => events.includes('close'), { describe: 'the end' });
    expect([received(), events]).toEqual(['before, am', ['close']]);
  });

  it('that takes no connections goes on with those it has, and takes new ones later', async () => {
    const { hop, client, untilReceived, openClient: openAnother } = await openEcho();
    hop.refuse();
    client.write('an old one');
    await untilReceived('an old one');
    await expect(openAnother()).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    await hop.accept();
    const another = await openAnother();
    another.client.write('a new one');
    await another.untilReceived('a new one');
  });

  it('that is narrow takes its time for each byte, each way', async () => {
    const { hop, client, untilReceived } = await openEcho();
    hop.setShape({ bytesPerSecond: 1000, pieceBytes: 100 });
    const startedAt = performance.now();
    const text = 'x'.repeat(300);
    client.write(text);
    await untilReceived(text);
    // The first piece is on its second way while the second is on its first.
    expect(performance.now() - startedAt).toBeGreaterThanOrEqual(398);
  });

  it('that is uneven keeps the order', async () => {
    const { hop, client, untilReceived } = await openEcho();
    hop.setShape({ jitterMs: 20, pieceBytes: 1 });
    const text = 'abcdefghijklmnopqrstuvwxyz';
    client.write(text);
    await untilReceived(text);
  });

  it('that closes late passes the end on after that time', async () => {
    const { hop, client, events } = await openEcho();
    hop.setShape({ closeMs: 200 });
    const startedAt = performance.now();
    client.end();
    await until(() => events.includes('close'), { describe: 'the end' });
    expect(performance.now() - startedAt).toBeGreaterThanOrEqual(398);
  });

  it('resets every connection, and takes new ones', async () => {
    const { hop, client, events, untilReceived, openClient: openAnother } = await openEcho();
    client.write('before');
    await untilReceived('before');
    hop.dropAll();
    await until(() => events.includes('close'), { describe: 'the reset' });
    expect(events[0]).toContain('ECONNRESET');
    const another = await openAnother();
    another.client.write('after');
    await another.untilReceived('after');
  });
});

describe('a hop that counts', () => {
  const place = (name: string, statements: number, roundTrips: number) => ({
    place: name,
    statements,
    roundTrips,
  });

  it('statements of PostgreSQL are counted alike for both drivers, and waits as the driver makes them', async () => {
    const database = await createEmptyDatabase();
    ends.push(database.drop);
    const hop = await startCountingHop(database.url);
    ends.push(() => hop.close());
    const sql = postgres(hop.through(database.url), { max: 1, prepare: false, fetch_types: false });
    const client = new pg.Client(hop.through(database.url));
    await client.connect();
    ends.push(() => client.end());
    ends.push(() => sql.end({ timeout: 1 }));
    await sql`SELECT 1`;
    hop.clear();

    await sql.begin(async (tx) => tx`SELECT ${'x'.repeat(5000)}::text AS long`);
    expect(hop.tally()).toMatchObject({ statements: 3, roundTrips: 4, transactions: 1 });
    // Without a prepared statement postgres.js asks for the types of the parameters first.
    expect(hop.tally().places).toContainEqual(place('SELECT $1::text AS long', 1, 2));
    hop.clear();
    await client.query('SELECT $1::text AS long', ['x'.repeat(5000)]);
    await client.query('SELECT 17');
    await client.query('SELECT 18');
    expect(hop.tally().places).toEqual([place('SELECT n', 2, 2), place('SELECT $1::text AS long', 1, 1)]);
  });

  it.skipIf(redisUrl() === undefined)('commands of Redis by name, scripts by their text', async () => {
    const url = redisUrl() ?? '';
    const hop = await startCountingHop(url);
    ends.push(() => hop.close());
    const redis = new Redis(hop.through(url), { enableReadyCheck: false });
    ends.push(() => redis.disconnect());
    const lua = '--[[ Answers one ]] return 1';
    await redis.eval(lua, 0);
    hop.clear();
    const sha = await redis.script('LOAD', lua);
    await redis.evalsha(String(sha), 0);
    await redis.pipeline().get('a').get('b').exec();
    expect(hop.tally().places).toEqual([
      place('GET', 2, 1),
      place('SCRIPT', 1, 1),
      place('script: Answers one ]] return n', 1, 1),
    ]);
  });
});
