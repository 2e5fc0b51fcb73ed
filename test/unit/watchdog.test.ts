// Guarantee 3
// When a connection is closed because it is silent, and when the process ends because its server is: never while new
// connections are answered, refused or not tried.
import type { Socket } from 'node:net';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { createWatchdog, type Watchdog } from '../../src/connections/watchdog.js';

const SERVER = 'PostgreSQL at db:5432';
const MINUTE = 60_000;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const passes = (minutes: number) => vi.advanceTimersByTime(minutes * MINUTE);

/** A socket, as far as the watchdog looks at it. */
function fakeSocket() {
  const seen = { destroyed: false, bytesRead: 0, writableEnded: false, paused: false };
  const socket = Object.assign(seen, {
    isPaused: () => seen.paused,
    destroy: () => void (seen.destroyed = true),
  });
  return socket as typeof socket & Socket;
}

it.each<[what: string, play: (dog: Watchdog) => void, ends: boolean]>([
  [
    'new connections are not answered either',
    (dog) => {
      dog.silent(SERVER);
      dog.unanswered(SERVER);
      passes(6);
      dog.unanswered(SERVER);
    },
    true,
  ],
  [
    'a new connection is answered, or refused',
    (dog) => {
      dog.silent(SERVER);
      dog.unanswered(SERVER);
      dog.answers(SERVER);
      passes(6);
      dog.unanswered(SERVER);
    },
    false,
  ],
  [
    'the first new connection is tried after a long time',
    (dog) => {
      dog.silent(SERVER);
      passes(10);
      dog.unanswered(SERVER);
    },
    false,
  ],
  [
    'more connections fall silent, and no new one is tried',
    (dog) => {
      dog.silent(SERVER);
      passes(10);
      dog.silent(SERVER);
    },
    false,
  ],
  [
    'bytes arrive over a connection that was open before',
    (dog) => {
      const socket = fakeSocket();
      dog.watch(socket, SERVER, { answerWithinMs: 60 * MINUTE });
      dog.silent(SERVER);
      dog.unanswered(SERVER);
      socket.bytesRead++;
      passes(6);
      dog.unanswered(SERVER);
    },
    false,
  ],
  [
    'another server is not answered',
    (dog) => {
      dog.silent(SERVER);
      dog.unanswered('PostgreSQL at other:5432');
      passes(6);
      dog.unanswered('PostgreSQL at other:5432');
    },
    false,
  ],
])('a silent server: %s', (_, play, ends) => {
  const servers: string[] = [];
  play(createWatchdog((server) => void servers.push(server)));
  expect(servers).toEqual(ends ? [SERVER] : []);
});

it.each([
  ['in use: it is silent', {}, { isClosed: true, isSilent: true }],
  ['that its reader has paused: not', { paused: true }, { isClosed: false, isSilent: false }],
  [
    'that was ended, a minute after: the server had nothing to answer',
    { writableEnded: true },
    { isClosed: true, isSilent: false },
  ],
])('a connection over which nothing arrives is closed: one %s', (_, state, { isClosed, isSilent }) => {
  const servers: string[] = [];
  const dog = createWatchdog((server) => void servers.push(server));
  const socket = fakeSocket();
  dog.watch(socket, SERVER, { answerWithinMs: 10 * MINUTE, closeWithinMs: MINUTE });
  passes(9);
  // The end is what counts, however long nothing has arrived before.
  Object.assign(socket, state);
  passes(0.9);
  expect(socket.destroyed).toBe(false);
  passes(0.3);
  expect(socket.destroyed).toBe(isClosed);
  dog.unanswered(SERVER);
  passes(6);
  dog.unanswered(SERVER);
  expect(servers.length > 0).toBe(isSilent);
});
