// The first look at a service: requests, answers, and what slotsync reads from the answers.
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeAll, expect, it } from 'vitest';
import { startSandbox } from '../../src/sandbox/sandbox.js';
import { playContract } from '../../src/sandbox/service.js';
import { contractSchema } from '../../src/sync/operator/probe-wire.js';
import { commandsOf, rehearseOnce } from '../support/rehearsals.js';

const world = rehearseOnce({ rows: 1, sandbox: { rate: 0 } });
let contract: string;
beforeAll(() => {
  contract = path.join(world.folder, 'contract.json');
  world.sandbox.putObject({
    extId: 'room_Anna',
    typeId: 'room',
    fields: [{ fieldId: 'room.name', values: ['Anna'] }],
    properties: { members: ['person_7'], changed: '2026-05-04T10:00:00Z' },
  });
});

it('check --wire shows for each endpoint the request, the answer, and what was understood', async () => {
  const shown = await world.ends(
    'check --wire',
    0,
    '✓ findObjects: POST /v1/objects/find, 200',
    '    sent: { idFormat: text, page: number, limit: number }',
    'answered: { results: [{ members: [text], changed: text, extId: text, typeId: text, id: number,',
    'room_Anna, type room, active, 1 field; kept as it is: members, changed',
    '6 answers understood, 0 not.',
  );
  expect(shown).not.toContain('person_7');
  expect(world.puts()).toEqual([]);
});

it('check --wire --values shows values, but neither key nor token', async () => {
  const shown = await world.ends('check --wire --values --json', 0, 'person_7');
  expect(shown).not.toMatch(/sandbox-key|eyJ/);
});

/** Runs a command against a service that plays these exchanges of a contract. */
async function withPlayer(
  exchanges: string,
  act: (player: ReturnType<typeof commandsOf>) => Promise<unknown>,
) {
  const speech = playContract(contractSchema.shape.exchanges.parse(JSON.parse(exchanges)));
  const { url, close } = await startSandbox({ rate: 0, speech });
  try {
    await act(commandsOf(world, { API_BASE_URL: url }));
  } finally {
    await close();
  }
}
const recorded = () => contractSchema.parse(JSON.parse(readFileSync(contract, 'utf8')));

it('check --record stores the shapes without values, and a sandbox can play them', async () => {
  await world.read(['check', '--record', contract]);
  const text = readFileSync(contract, 'utf8');
  expect(text).not.toMatch(/Anna|person_7|2026-05|eyJ/);
  expect(text).toContain('"fieldId": "room.name"');
  await withPlayer(JSON.stringify(recorded().exchanges), (player) =>
    player.ends(`check --against ${contract}`, 0, `Every answer has the shape recorded in ${contract}.`),
  );
});

it('check --against names what has changed since the record', async () => {
  const changed = path.join(world.folder, 'changed.json');
  const text = JSON.stringify(recorded()).replace('"members":', '"lecturers":').replace('"id":', '"number":');
  writeFileSync(changed, text);
  await world.ends(
    `check --against ${changed}`,
    1,
    '✗ findObjects: results[].lecturers: is gone',
    '! findObjects: results[].members: is new',
  );
});

it('check --wire names an answer that is not understood, its keys, and its place in a dialect', async () => {
  const renamed = JSON.stringify(recorded().exchanges).replaceAll('"results"', '"items"');
  await withPlayer(renamed, (player) =>
    player.ends(
      'check --wire',
      1,
      /not understood: POST \/v1\/objects\/find: the answer cannot be understood: results: .*; the answer has the form \{ items: \[/,
      'To adapt slotsync to the service, configure a dialect with find.ask, find.read and object.read.',
      '1 answer understood, 5 not.',
    ),
  );
});
