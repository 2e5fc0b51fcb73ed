// Guarantee 3
// Closes silent connections, and ends the process if its server is silent. Never ends it while new connections are
// answered, refused or not tried.
import type { Socket } from 'node:net';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { createWatchdog } from '../../src/connections/watchdog.js';

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

/** Steps: silence of a server, a new connection that is not answered or that is, bytes of an old one, or minutes. */
type Step = 'silent' | 'unanswered' | 'answers' | 'bytes' | 'other unanswered' | number;
it.each<[what: string, ends: boolean, steps: Step[]]>([
  ['new connections are not answered', true, ['silent', 'unanswered', 6, 'unanswered']],
  ['one is answered, or refused', false, ['silent', 'unanswered', 'answers', 6, 'unanswered']],
  ['the first new connection is tried after a long time', false, ['silent', 10, 'unanswered']],
  ['more connections fall silent, and no new one is tried', false, ['silent', 10, 'silent']],
  ['bytes arrive over an older connection', false, ['silent', 'unanswered', 'bytes', 6, 'unanswered']],
  ['another server is not answered', false, ['silent', 'other unanswered', 6, 'other unanswered']],
])('a silent server ends the process or not: %s', (_, ends, steps) => {
  const servers: string[] = [];
  const dog = createWatchdog((server) => void servers.push(server));
  const socket = fakeSocket();
  dog.watch(socket, SERVER, { answerWithinMs: 60 * MINUTE });
  for (const step of steps) {
    if (typeof step === 'number') passes(step);
    else if (step === 'bytes') socket.bytesRead++;
    else if (step === 'other unanswered') dog.unanswered('PostgreSQL at other:5432');
    else dog[step](SERVER);
  }
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
