// The first look at a service: requests, answers, and what slotsync reads from the answers.
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startSandbox } from '../../src/sandbox/sandbox.js';
import { playContract } from '../../src/sandbox/service.js';
import { contractSchema } from '../../src/sync/operator/probe-wire.js';
import { rehearse, type Rehearsal } from '../support/rehearsal.js';

let world: Rehearsal;
let contract: string;
beforeAll(async () => {
  world = await rehearse({ rows: 1, sandbox: { rate: 0 } });
  contract = path.join(world.folder, 'contract.json');
  world.sandbox.putObject({
    extId: 'room_Anna',
    typeId: 'room',
    fields: [{ fieldId: 'room.name', values: ['Anna'] }],
    properties: { members: ['person_7'], changed: '2026-05-04T10:00:00Z' },
  });
});
afterAll(() => world.close());

it('check --wire shows for each endpoint the request, the answer, and what was understood', async () => {
  const { code, stdout } = await world.run(['check', '--wire']);
  expect(code).toBe(0);
  expect(stdout).toContain('✓ findObjects: POST /v1/objects/find, 200');
  expect(stdout).toContain('    sent: { idFormat: text, page: number, limit: number }');
  expect(stdout).toContain(
    'answered: { results: [{ members: [text], changed: text, extId: text, typeId: text, id: number,',
  );
  expect(stdout).toContain('room_Anna, type room, active, 1 field; kept as it is: members, changed');
  expect(stdout).toContain('6 answers understood, 0 not.');
  expect(stdout).not.toContain('person_7');
  expect(world.puts()).toEqual([]);
});

it('check --wire --values shows values, but neither key nor token', async () => {
  const { stdout } = await world.run(['check', '--wire', '--values', '--json']);
  expect(stdout).toContain('person_7');
  expect(stdout).not.toContain('sandbox-key');
  expect(stdout).not.toContain('eyJ');
});

it('check --record stores the shapes without values, and a sandbox can play them', async () => {
  expect((await world.run(['check', '--record', contract])).code).toBe(0);
  const text = readFileSync(contract, 'utf8');
  expect(text).not.toMatch(/Anna|person_7|2026-05|eyJ/);
  expect(text).toContain('"fieldId": "room.name"');
  const { exchanges } = contractSchema.parse(JSON.parse(text));
  const player = await startSandbox({ rate: 0, speech: playContract(exchanges) });
  try {
    const played = await world.run(['check', '--against', contract], { API_BASE_URL: player.url });
    expect([played.code, played.stdout]).toEqual([
      0,
      expect.stringContaining(`Every answer has the shape recorded in ${contract}.`),
    ]);
  } finally {
    await player.close();
  }
});

it('check --against names what has changed since the record', async () => {
  const recorded = contractSchema.parse(JSON.parse(readFileSync(contract, 'utf8')));
  const changed = path.join(world.folder, 'changed.json');
  writeFileSync(
    changed,
    JSON.stringify(recorded).replace('"members":', '"lecturers":').replace('"id":', '"number":'),
  );
  const { code, stdout } = await world.run(['check', '--against', changed]);
  expect(code).toBe(1);
  expect(stdout).toContain('✗ findObjects: results[].lecturers: is gone');
  expect(stdout).toContain('! findObjects: results[].members: is new');
});

it('check --wire names an answer that is not understood, its keys, and its place in a dialect', async () => {
  const recorded = contractSchema.parse(JSON.parse(readFileSync(contract, 'utf8')));
  const renamed = JSON.stringify(recorded.exchanges).replaceAll('"results"', '"items"');
  const player = await startSandbox({
    rate: 0,
    speech: playContract(contractSchema.shape.exchanges.parse(JSON.parse(renamed))),
  });
  try {
    const { code, stdout } = await world.run(['check', '--wire'], { API_BASE_URL: player.url });
    expect(code).toBe(1);
    expect(stdout).toMatch(
      /not understood: POST \/v1\/objects\/find: the answer cannot be understood: results: .*; the answer has the form \{ items: \[/,
    );
    expect(stdout).toContain(
      'To adapt slotsync to the service, configure a dialect with find.ask, find.read and object.read.',
    );
    expect(stdout).toContain('1 answer understood, 5 not.');
  } finally {
    await player.close();
  }
});

it.each([
  ['{', 'cannot be read'],
  ['{"version":2}', 'is not a recorded contract: version'],
])('check --against refuses a file that is not a recorded contract: %s', async (text, message) => {
  const file = path.join(world.folder, 'other.json');
  writeFileSync(file, text);
  const { code, stderr } = await world.run(['check', '--against', file]);
  expect([code, stderr]).toEqual([2, expect.stringContaining(message)]);
});
