// Guarantee 10
// Sentences for why a record is not in sync, and for what happens next: a retry, a wait, or an operator's command.
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import {
  commandOfCause,
  describeChain,
  headlineOf,
  needsOperator,
  nextOfCause,
  nextStep,
  reasonOf,
} from '../../src/documents/causes.js';
import { isGivenUpByCode, remedyFor } from '../../src/errors/error-catalogue.js';
import type { Cause } from '../../src/situation/causes.js';
import type { Chain } from '../../src/situation/chains.js';
import { CAUSE, GATE, NOW } from '../support/situations.js';
import { expectNextStep, type Turn } from '../support/next-step.js';

const APPROVAL = { allowed: 40, digest: null, at: NOW, by: 'ada', runId: 13, expiresAt: NOW };
const two = { records: 2, keys: ['R7', 'R8'] };
const IS_HELD = "2 deactivations of rooms are held in run 12: 'R7', 'R8'";
const HELD = { ...two, status: 'held' as const, code: 'retire', gate: GATE };

describe('the cause of a record that is not in sync', () => {
  const AGAIN = /^No action needed: the next sync sends them again\. To send now: slotsync sync rooms$/;
  const MIXED =
    /^No action needed: a worker sends the 1 of them that is in the inbox again, and the next sync the others\./;
  const APPROVE = 'approve 12 --stream rooms --operation retire';
  const WAITED = { waiting: 1, waitingByStream: { courses: 1 } };
  const ALL_WAITED = { waiting: 3, waitingByStream: { courses: 2, staff: 1 } };
  const failed: Partial<Cause> = { ...two, status: 'failed' };
  it.each<[headline: string, changes: Partial<Cause>, command: string, next: RegExp, needs?: boolean]>([
    [
      `rooms 'R7': given up (refused_400)`,
      {},
      'retry rooms R7',
      /^Correct the row, and the next run sends it\./,
      true,
    ],
    [
      "2 records of rooms given up (refused_400): 'R7', 'R8' → 3 records wait for them (2 of courses, 1 of staff)",
      { ...two, ...ALL_WAITED },
      'retry rooms --status dead --code refused_400',
      /^Correct the row/,
      true,
    ],
    [
      "2 records of rooms failed (service_failed): 'R7', 'R8'",
      { ...failed, code: 'service_failed' },
      'sync rooms',
      /^Nothing is lost\. Once it answers again: slotsync sync$/,
    ],
    ["2 records of rooms failed (refused_400): 'R7', 'R8'", failed, 'sync rooms', AGAIN],
    ["2 records of rooms failed (refused_400): 'R7', 'R8'", { ...failed, inInbox: 1 }, 'sync rooms', MIXED],
    [
      "2 records of rooms are in the inbox to be sent again (refused_400): 'R7', 'R8'",
      { ...failed, inInbox: 2 },
      'sync rooms',
      /^No action needed: they are in the inbox, and a worker sends them again\./,
    ],
    ["rooms 'R7': given up (refused_400)", { inInbox: 1 }, 'retry rooms R7', /^Correct the row/, true],
    [
      "rooms 'R7': failed (external_id_shared)",
      { status: 'failed', code: 'external_id_shared' },
      'sync rooms',
      /Correct|correct/,
      true,
    ],
    [
      "rooms 'R7' has no record → 1 record of courses waits for it",
      { status: 'absent', code: null, ...WAITED },
      'explain rooms R7',
      /^Add the row/,
      true,
    ],
    [
      "2 records of rooms are part of a circular reference: 'R7', 'R8'",
      { status: 'cycle', code: null, ...two },
      'explain rooms R7',
      /^Correct one row, so that it no longer refers to the others/,
      true,
    ],
    [
      "rooms 'R7' was accepted meanwhile → 1 record of courses waits for it",
      { status: 'synced', code: null, ...WAITED },
      'sync courses',
      /^No action needed: the next sync sends the waiting records\./,
    ],
    ["rooms 'R7': deactivated", { status: 'retired', code: null }, 'explain rooms R7', /^Restore the row/],
    [
      "rooms 'R7': pending",
      { status: 'pending', code: null },
      'status',
      /^No action needed while a process works on the run/,
    ],
    [IS_HELD, HELD, APPROVE, /^If this is intended: slotsync approve 12 --stream rooms --operation retire$/],
    [
      IS_HELD,
      { ...HELD, gate: { ...GATE, approval: APPROVAL } },
      'status',
      /^No action needed: it is approved, and the next whole sync sends it$/,
    ],
    [
      IS_HELD,
      { ...HELD, gate: { ...GATE, rejectedAt: NOW } },
      APPROVE,
      /^No action needed: an operator rejected it, until its records change\./,
    ],
    [
      "rooms 'R7': given up (refused_400)",
      { isConfigured: false },
      'forget rooms R7',
      /^rooms is not in the configuration/,
      true,
    ],
    [
      "rooms 'a b|'c': given up (refused_400)", // a shell would take the key apart
      { keys: ["a b|'c"] },
      String.raw`retry rooms 'a b|'\''c'`,
      /^Correct the row/,
      true,
    ],
  ])('is described with its next step and command: %s', (headline, changes, command, next, needs = false) => {
    const cause = { ...CAUSE, ...changes };
    expect(headlineOf(cause)).toBe(headline);
    expect(nextOfCause(cause)).toMatch(next);
    expect(commandOfCause(cause)).toBe(`slotsync ${command}`);
    expect(needsOperator(cause)).toBe(needs);
  });

  it.each<[Partial<Cause>, string | undefined]>([
    [{}, 'the name is too long'],
    [{ messages: 3 }, "3 different reasons; that of 'R7': the name is too long"],
    [{ message: null }, undefined],
    [{ status: 'absent' }, 'its row is missing in the mirror, or no run has sent it yet'],
    [{ status: 'retired', records: 2 }, 'their rows are gone from the mirror'],
  ])('shows its reason: %o', (changes, reason) => {
    expect(reasonOf({ ...CAUSE, ...changes })).toBe(reason);
  });
});

describe('a chain of waiting records', () => {
  const end = {
    stream: 'rooms',
    localKey: 'R7',
    status: 'dead',
    code: 'refused_400',
    message: 'too long',
    gate: null,
  } as const;
  const via = [{ stream: 'courses', localKey: '4' }];
  it.each<[Partial<Chain['end']>, string, string]>([
    [{}, 'is given up (refused_400): too long', "For rooms 'R7': correct the row"],
    [{ status: 'failed' }, 'failed (refused_400): too long', "For rooms 'R7': no action needed"],
    [
      { status: 'absent', code: null },
      'has no record: its row is missing in the mirror',
      "For rooms 'R7': add the row",
    ],
    [{ status: 'cycle' }, 'is part of a circular reference', 'Correct one row, so that it no longer refers'],
    [
      { status: 'synced' },
      'was accepted meanwhile',
      'No action needed: the next sync sends the waiting records',
    ],
    [
      { status: 'held', code: 'retire', gate: GATE },
      'is held in run 12 (retire)',
      "For rooms 'R7': if this is intended: slotsync approve 12",
    ],
  ])('names its end and what happens next: %o', (changes, which, next) => {
    const chain = { via, between: 4, end: { ...end, ...changes } };
    expect(describeChain(chain)).toContain(
      `courses '4', which waits for 3 more, the last of which waits for rooms 'R7', which ${which}`,
    );
    const record = {
      stream: 'courses',
      localKey: '3',
      errorCode: 'reference_missing',
      status: 'deferred' as const,
    };
    expect(nextStep({ ...record, chain })).toContain(next);
  });
});

const SRC = fileURLToPath(new URL('../../src/', import.meta.url));
const sources = () =>
  readdirSync(SRC, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts') && !/^(sandbox|demo)\//.test(file))
    .map((file) => readFileSync(`${SRC}${file}`, 'utf8'));

const words = (text: string) => text.trim().split(/\s+/);
/** Error codes with which a plan or a batch can fail, by who acts next. */
const RETRIED = words(`
  answer_contradicts answer_incomplete answer_invalid answer_lost answer_too_large claim_lost claimed gateway_answered
  limiter_closed mirror_failed mirror_timeout mirror_unreachable quota_unavailable reading_moved run_stopped
  service_failed service_fails_on_object service_unreachable state_failed state_timeout state_unreachable throttled
  unexpected`);
const BY_A_PERSON = words(`
  configuration destination_changed external_ids_not_unique forbidden key_not_unique key_null key_order key_reserved
  mirror_raised mirror_read_only mirror_refused mirror_row_security mirror_source redirected refused row_too_large
  state_refused state_rights unauthorized`);
const OF_RUNS: [code: string, turn: Turn][] = [
  ...RETRIED.map((code): [string, Turn] => [code, 'retry']),
  ...BY_A_PERSON.map((code): [string, Turn] => [code, 'person']),
];
/** Codes found while planning, before a batch exists. */
const OF_PLANNING = words('key_not_unique key_null key_reserved key_order external_ids_not_unique');
/** Codes that no batch or record has: a command ends with them, or a worker stops sending. Their messages say what to do. */
const OF_COMMANDS = words(`
  not_found queue_unreachable reconcile_running run_cancelled run_lost state_locked state_read_only state_restored
  triggers_busy triggers_failed usage verify_running worker_ended`);

describe('an error code', () => {
  it('is listed in this test if the program can throw it', () => {
    const codes = sources().flatMap((text) =>
      [...text.matchAll(/SlotsyncError\(\s*'(\w+)'|'((?:state|mirror)_(?:re|un|fail|so)\w+)'/g)].map(
        ([, literal, computed]) => literal ?? computed ?? '',
      ),
    );
    expect([...RETRIED, ...BY_A_PERSON, ...OF_COMMANDS]).toEqual(expect.arrayContaining(codes));
    expect(new Set(codes).size).toBeGreaterThan(20);
  });

  it.each(OF_RUNS)('explains a failed run with its next step: %s (%s)', (code, turn) => {
    expectNextStep(remedyFor(code), turn);
  });

  it.each(OF_RUNS.filter(([code]) => !OF_PLANNING.includes(code)))(
    'explains a failed record with its next step: %s (%s)',
    (code, turn) => {
      const failure = { stream: 'rooms', localKey: 'A', status: 'failed', errorCode: code } as const;
      // Failed records are sent again, whatever they were refused for.
      expectNextStep(nextStep(failure), isGivenUpByCode(code) ? 'wait' : turn);
    },
  );
});
