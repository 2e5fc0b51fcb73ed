// Every error code, once: what it means, what happens next, and what the reader can do. An error, a failed run and
// a record's error_code all use these codes; docs/operations.md is held to this list by a test.

/** What happens next: try again, wait without using up an attempt, or stop until an operator or a change acts. */
export type Disposition = 'retry' | 'defer' | 'dead';

export interface ErrorEntry {
  meaning: string;
  /** A record with this code is `failed` (retry), `deferred` (defer) or `dead`. */
  disposition: Disposition;
  /** Exit code of a command that this error ends. 1 unless given. */
  exitCode?: 2;
  /**
   * The cause lies outside any record, so it counts towards the circuit breaker. `wait`: waiting for its end uses up
   * no attempt. `retry`: it may also be the fault of one batch, which must not be tried for ever.
   */
  systemic?: 'wait' | 'retry';
  /** What to do about a command or run that ended with it. */
  remedy: string;
  /** What to do about a record, where that differs. `{retry}` stands for the retry command of that record. */
  recordRemedy?: string;
}

const CORRECT_CONFIGURATION =
  'Correct the settings, the configuration or the source, then: slotsync check, slotsync sync';
const WHEN_BACK = 'Nothing is lost; once it answers again: slotsync sync';
const NEXT_RUN = 'The next run tries again: slotsync sync';
const NEXT_RUN_RECORD = 'the next run tries again: slotsync sync';
const CORRECT_ROW = 'correct the row, and the next run sends it; to send it again unchanged: {retry}';

export const ERRORS = {
  usage: {
    meaning: 'wrong use, settings or configuration',
    disposition: 'dead',
    exitCode: 2,
    remedy: '',
  },
  configuration: {
    meaning: 'the service knows no such type or field, or a stream is gone from the configuration',
    disposition: 'dead',
    exitCode: 2,
    remedy: CORRECT_CONFIGURATION,
  },
  unauthorized: {
    meaning: 'the service did not accept the key, or does not permit the request',
    disposition: 'dead',
    exitCode: 2,
    systemic: 'wait',
    remedy: 'Check API_KEY, API_ORGANIZATION_ID, API_REGION and API_BASE_URL, then: slotsync check',
  },
  redirected: {
    meaning: 'the service answers at another address',
    disposition: 'dead',
    exitCode: 2,
    remedy: 'Set API_BASE_URL to the address the service answers at, then: slotsync check',
  },
  refused: {
    meaning: 'the service refused the request or the object',
    disposition: 'dead',
    remedy: 'Compare what the service says with docs/api-contract.md, and run: slotsync check',
    recordRemedy: CORRECT_ROW,
  },
  service_unreachable: {
    meaning: 'the service does not answer',
    disposition: 'retry',
    systemic: 'wait',
    remedy: `${WHEN_BACK}. Check API_BASE_URL and the network path to it (proxy, firewall, DNS).`,
  },
  service_failed: {
    meaning: 'the service answered 5xx, 408 or 425',
    disposition: 'retry',
    systemic: 'retry',
    remedy: WHEN_BACK,
  },
  answer_lost: {
    meaning: 'a request was sent and no answer arrived; it may have been carried out',
    disposition: 'retry',
    systemic: 'retry',
    remedy: WHEN_BACK,
  },
  answer_invalid: {
    meaning: 'the answer of the service cannot be understood',
    disposition: 'retry',
    remedy: 'If it stays so, the service differs from docs/api-contract.md: run slotsync check',
  },
  answer_incomplete: {
    meaning: 'the service gave no final answer for some objects',
    disposition: 'retry',
    remedy: NEXT_RUN,
  },
  throttled: {
    meaning: 'the service answered 429 thirty times in a row',
    disposition: 'retry',
    remedy:
      'Another integration seems to use the whole quota; lower API_REQUESTS_PER_SECOND or talk to its owner.',
  },
  quota_unavailable: {
    meaning: 'the store of the quota (Redis or the state database) does not answer',
    disposition: 'retry',
    systemic: 'wait',
    remedy: 'Nothing is sent without the quota. Check that Redis or PostgreSQL answers.',
  },
  limiter_closed: {
    meaning: 'the process is shutting down',
    disposition: 'retry',
    remedy: NEXT_RUN,
  },
  queue_unreachable: {
    meaning: 'Redis does not answer',
    disposition: 'retry',
    remedy: 'Check REDIS_URL and that the server is up.',
  },
  mirror_source: {
    meaning: 'a table, column, right or value of the mirror is not as the configuration needs it',
    disposition: 'dead',
    exitCode: 2,
    remedy: 'Correct the configuration or the source, or grant the missing right, then: slotsync check',
  },
  mirror_read_only: {
    meaning: 'a source tries to write; the mirror is only read',
    disposition: 'dead',
    exitCode: 2,
    remedy: 'Take the writing function out of the query or view, then: slotsync check',
  },
  mirror_refused: {
    meaning: 'the mirror refused the connection',
    disposition: 'dead',
    exitCode: 2,
    systemic: 'wait',
    remedy: 'Check MIRROR_DATABASE_URL, then: slotsync check',
  },
  mirror_unreachable: {
    meaning: 'the mirror does not answer',
    disposition: 'retry',
    systemic: 'wait',
    remedy: `${WHEN_BACK}. Check MIRROR_DATABASE_URL and that the server is up.`,
  },
  mirror_failed: {
    meaning: 'a statement failed at the mirror',
    disposition: 'retry',
    remedy: 'The log of the mirror’s server says more. The next run tries again: slotsync sync',
  },
  state_refused: {
    meaning: 'the state database refused the connection',
    disposition: 'dead',
    exitCode: 2,
    remedy: 'Check STATE_DATABASE_URL (default: MIRROR_DATABASE_URL), then: slotsync check',
  },
  state_unreachable: {
    meaning: 'the state database does not answer',
    disposition: 'retry',
    systemic: 'wait',
    remedy: `${WHEN_BACK}. Check STATE_DATABASE_URL (default: MIRROR_DATABASE_URL).`,
  },
  state_failed: {
    meaning: 'a statement failed at the state database',
    disposition: 'retry',
    remedy: 'Check STATE_DATABASE_URL (default: MIRROR_DATABASE_URL) and the log of its server.',
  },
  key_not_unique: {
    meaning: 'several rows have one key',
    disposition: 'dead',
    remedy: 'Correct `key` in the configuration, or the source; nothing of this stream was sent.',
  },
  key_null: {
    meaning: 'the key is null in some rows',
    disposition: 'dead',
    remedy: 'Correct `key` in the configuration, or the source; nothing of this stream was sent.',
  },
  key_order: {
    meaning: 'the mirror does not return its keys in the order of their UTF-8 bytes',
    disposition: 'dead',
    remedy: 'The mirror’s database must be encoded in UTF-8.',
  },
  external_ids_not_unique: {
    meaning: 'more than 1000 external ids are shared by several rows',
    disposition: 'dead',
    remedy: 'Name the columns that identify a row in `externalId`, then: slotsync check',
  },
  claimed: {
    meaning: 'another batch is writing some of these records',
    disposition: 'defer',
    remedy: NEXT_RUN,
  },
  claim_lost: {
    meaning: 'another batch took over some of these records',
    disposition: 'retry',
    remedy: NEXT_RUN,
  },
  approval_withdrawn: {
    meaning: 'an approval was withdrawn while the run was planned',
    disposition: 'retry',
    remedy: NEXT_RUN,
  },
  reconcile_running: {
    meaning: 'another process reconciles',
    disposition: 'defer',
    remedy: 'Wait until it has ended; slotsync status shows it.',
  },
  interrupted: {
    meaning: 'a reconcile run whose process was stopped',
    disposition: 'retry',
    remedy: 'The next one reads everything again: slotsync reconcile',
  },
  run_cancelled: {
    meaning: 'the run was cancelled',
    disposition: 'dead',
    remedy: 'None; to start another: slotsync sync, or slotsync reconcile',
  },
  run_lost: {
    meaning: 'the run is gone from the state',
    disposition: 'dead',
    remedy: 'Somebody deleted its row; start another: slotsync sync',
  },
  not_found: {
    meaning: 'no row, record or booking has this key',
    disposition: 'dead',
    remedy: 'Keys are as `slotsync failures` and the tables in schema slotsync show them.',
  },
  triggers_busy: {
    meaning: 'a table is written to all the time, so its trigger could not be changed',
    disposition: 'retry',
    remedy: 'Nothing was changed for this table; run the same command again at a quieter time.',
  },
  triggers_failed: {
    meaning: 'a trigger could not be created or removed',
    disposition: 'dead',
    remedy: 'Let the owner of the table run what slotsync triggers print shows.',
  },
  embedded_postgres_failed: {
    meaning: 'the embedded PostgreSQL could not be started',
    disposition: 'dead',
    remedy: 'Read the lines of PostgreSQL above.',
  },
  reference_missing: {
    meaning: 'the record refers to a record that is not at the service yet',
    disposition: 'defer',
    remedy: 'Action: none. It is sent once the other record is at the service.',
  },
  still_reserved: {
    meaning: 'the row is gone, and the object has bookings yet to come',
    disposition: 'defer',
    remedy: 'Action: none. It is retired by the first run after its bookings are over or cancelled.',
  },
  external_id_shared: {
    meaning: 'several rows give one external id; none of them is sent',
    disposition: 'retry',
    remedy: 'Correct one of the rows, or the template of the external id, then: slotsync sync',
  },
  mapping_failed: {
    meaning: 'a mapping function threw, or a value cannot be sent',
    disposition: 'dead',
    remedy: 'Correct the row or the mapping; the next run sends it.',
    recordRemedy: CORRECT_ROW,
  },
  retirement_refused: {
    meaning: 'the row is gone, and the service refused to make the object inactive',
    disposition: 'dead',
    remedy: 'Remove at the service what keeps the object, then: slotsync retry',
    recordRemedy: 'remove at the service what keeps the object, or restore the row, then: {retry}',
  },
  external_id_changed: {
    meaning: 'the row now gives another external id than the one the service accepted',
    disposition: 'dead',
    remedy: 'Deactivate the former object at the service if it is not wanted, then: slotsync retry',
    recordRemedy: 'deactivate the former object at the service if it is not wanted, then: {retry}',
  },
  external_id_taken: {
    meaning: 'an object of another type has this external id',
    disposition: 'dead',
    remedy: 'Correct the template, or the object at the service, then: slotsync retry',
    recordRemedy: 'correct the template, or the object at the service, then: {retry}',
  },
  reference_never_came: {
    meaning: 'the record it refers to did not arrive within `waitDays`',
    disposition: 'dead',
    remedy: 'Bring the other row; the record is sent when it arrives.',
    recordRemedy: 'bring the other row, and this one is sent when it arrives; to try now: {retry}',
  },
  unexpected: {
    meaning: 'an error without a code of its own',
    disposition: 'retry',
    remedy: NEXT_RUN,
  },
} as const satisfies Record<string, ErrorEntry>;

export type ErrorCode = keyof typeof ERRORS;

/** The entry of a code as the state and other systems have it: `refused_400` is `refused` with its status. */
export function errorEntry(code: string | null): ErrorEntry {
  const base = (code ?? '').replace(/_\d{3}$/, '');
  return Object.hasOwn(ERRORS, base) ? ERRORS[base as ErrorCode] : ERRORS.unexpected;
}

/** What to do about a record with this code, as the end of a sentence. `retryCommand` is that record's. */
export function recordRemedy(code: string | null, retryCommand: string): string {
  const { disposition, recordRemedy: remedy } = errorEntry(code);
  if (remedy !== undefined) return remedy.replace('{retry}', retryCommand);
  return disposition === 'dead' ? CORRECT_ROW.replace('{retry}', retryCommand) : NEXT_RUN_RECORD;
}
