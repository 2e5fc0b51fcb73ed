// The control requests of the sandbox in README and docs: the sandbox accepts each as it is printed.
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { startSandbox, type Sandbox } from '../../src/sandbox/sandbox.js';
import { schemaDefinition } from '../../src/sandbox/schema.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
const pages = ['README.md', ...readdirSync(`${root}docs`).map((file) => `docs/${file}`)].filter((file) =>
  file.endsWith('.md'),
);
const CURL =
  /^ *curl (?:-X (\w+) )?(?:\$API_BASE_URL|http:\/\/127\.0\.0\.1:8377)(\/sandbox\/\S+)(?: -d '([^']+)')?/gm;
const requests = pages.flatMap((page) =>
  [...readFileSync(root + page, 'utf8').matchAll(CURL)].map(([, method = 'GET', path = '', body]) => ({
    page,
    method,
    path,
    body,
  })),
);

let sandbox: Sandbox;
beforeEach(async () => {
  sandbox = await startSandbox({
    schema: {
      types: [{ extId: 'room' }],
      fields: [
        { extId: 'room.name', type: 'room' },
        { extId: 'room.seats', type: 'room' },
      ],
    },
  });
  // The objects that the examples name; the first has the number 1001.
  sandbox.putObject({ extId: 'room_N202', typeId: 'room' });
  const begin = Math.floor(Date.now() / 1000);
  for (const extId of ['res_6062', 'res_6063', 'res_6064'])
    sandbox.addReservation({ extId, begin, end: begin + 3600 });
  sandbox.cancelReservation('res_6063', {});
});
afterEach(() => sandbox.close());

it('the documents show more than a dozen control requests of the sandbox', () => {
  expect(requests.length).toBeGreaterThan(12);
});

it.each(requests)(
  'the sandbox accepts the request of $page: $method $path $body',
  async ({ method, path, body }) => {
    if (path.endsWith('/cancel')) sandbox.restoreReservation('res_6063');
    const answer = await fetch(sandbox.url + path, { method, ...(body === undefined ? {} : { body }) });
    expect(answer.ok, await answer.text()).toBe(true);
  },
);

it('the table of docs/getting-started.md lists every key of a schema', () => {
  const page = readFileSync(`${root}docs/getting-started.md`, 'utf8');
  const documented = [...page.matchAll(/^\| `(\w+)` +\| ((?:types|fields|, )+) /gm)];
  for (const of of ['types', 'fields'] as const) {
    const keys = documented.filter(([, , all = '']) => all.includes(of)).map(([, key]) => key);
    expect(new Set(keys)).toEqual(new Set(Object.keys(schemaDefinition.shape[of].element.shape)));
  }
});
