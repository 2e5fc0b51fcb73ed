// Guarantee 3
// When a process ends because a server is silent: never while new connections are answered, refused or not tried.
import { expect, it } from 'vitest';
import { createWatchdog, type Watchdog } from '../../src/connections/watchdog.js';

const SERVER = 'PostgreSQL at db:5432';
const GIVE_UP_MS = 30;
const pause = () => new Promise((resolve) => setTimeout(resolve, GIVE_UP_MS + 5));

it.each<[what: string, play: (dog: Watchdog) => Promise<void>, ends: boolean]>([
  [
    'new connections are not answered either',
    async (dog) => {
      dog.silent(SERVER);
      dog.tries(SERVER);
      await pause();
      dog.tries(SERVER);
    },
    true,
  ],
  [
    'a new connection is answered, or refused',
    async (dog) => {
      dog.silent(SERVER);
      dog.tries(SERVER);
      dog.answers(SERVER);
      await pause();
      dog.tries(SERVER);
    },
    false,
  ],
  [
    'no new connection is tried for a long time',
    async (dog) => {
      dog.silent(SERVER);
      await pause();
      dog.silent(SERVER);
    },
    false,
  ],
  [
    'another server is tried',
    async (dog) => {
      dog.silent(SERVER);
      await pause();
      dog.tries('PostgreSQL at other:5432');
    },
    false,
  ],
])('a silent server: %s', async (_, play, ends) => {
  const sentences: string[] = [];
  await play(createWatchdog((sentence) => void sentences.push(sentence), GIVE_UP_MS));
  expect(sentences.length > 0).toBe(ends);
});
