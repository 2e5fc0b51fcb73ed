// Guarantee 3
// Closes silent connections, and ends the process if its server is silent. Never ends it while new connections are
// answered, refused or not tried.
import type { Socket } from 'node:net';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { createWatchdog, type Watchdog } from '../../src/connections/watchdog.js';

const SERVER = 'PostgreSQL at db:5432';
const MINUTE = 60_000;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const passes = (minutes: number) => vi.advanceTimersByTime(minutes * MINUTE);

/** Plays the part of a socket that the watchdog uses. */
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
    'new connections are not answered',
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
])('a silent server ends the process or not: %s', (_, play, ends) => {
  const servers: string[] = [];
  play(createWatchdog((server) => void servers.push(server)));
  expect(servers).toEqual(ends ? [SERVER] : []);
});

it.each([
  ['in use, which counts as silent', {}, { isClosed: true, isSilent: true }],
  ['paused by its reader, which stays open', { paused: true }, { isClosed: false, isSilent: false }],
  [
    'ended by us, which does not count as silent',
    { writableEnded: true },
    { isClosed: true, isSilent: false },
  ],
])('a silent connection is closed or not: %s', (_, state, { isClosed, isSilent }) => {
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
