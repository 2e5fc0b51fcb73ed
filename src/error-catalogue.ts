// Every error code, once: what it means, what happens next, and what to do. An error, a failed run and
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
   * no attempt. `retry`: one batch may also cause it, and must not be tried for ever.
   */
  systemic?: 'wait' | 'retry';
  /** What to do about a command or run that ended with it, and about a record unless `recordRemedy` says otherwise. */
  remedy: string;
  /** `{retry}` stands for the command that sends this record again. */
  recordRemedy?: string;
}

const NEXT_RUN = 'The next run tries again: slotsync sync';
const WHEN_BACK = 'Nothing is lost. Once it answers again: slotsync sync';
const CORRECT_KEY =
  'Correct `key` in the configuration, or the source, then: slotsync check. Nothing of this stream was sent.';
const CORRECT_ROW = 'Correct the row, and the next run sends it. To send it again unchanged: {retry}';

export const ERRORS = {
  usage: {
    meaning: 'wrong use, settings or configuration',
    disposition: 'dead',
    exitCode: 2,
    remedy: '',
  },
  configuration: {
    meaning: 'the service does not know a type or field, or a stream is no longer in the configuration',
    disposition: 'dead',
    exitCode: 2,
    remedy:
      'Correct the configuration, or create the names at the service, then: slotsync check, slotsync sync',
  },
  unauthorized: {
    meaning: 'the service did not accept the key, or does not permit the request',
    disposition: 'dead',
    exitCode: 2,
    systemic: 'wait',
    remedy: 'Check API_KEY, API_ORGANIZATION_ID, API_REGION and API_BASE_URL, then: slotsync check',
  },
  redirected: {
    meaning: 'the service has another address',
    disposition: 'dead',
    exitCode: 2,
    remedy: 'Set API_BASE_URL to the address the service redirects to, then: slotsync check',
  },
  refused: {
    meaning: 'the service refused the request or the object',
    disposition: 'dead',
    remedy: 'Compare the reason the service gives with docs/api-contract.md, then: slotsync check',
    recordRemedy: CORRECT_ROW,
  },
  service_unreachable: {
    meaning: 'the service does not answer',
    disposition: 'retry',
    systemic: 'wait',
    remedy: `${WHEN_BACK}. Check API_BASE_URL and the network path (proxy, firewall, DNS).`,
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
    meaning: 'the answer of the service does not match docs/api-contract.md',
    disposition: 'retry',
    remedy: `${NEXT_RUN}. If it happens again: slotsync check`,
  },
  answer_incomplete: {
    meaning: 'the service gave no final answer for some objects',
    disposition: 'retry',
    remedy: NEXT_RUN,
  },
  throttled: {
    meaning: 'the service answered 429 thirty times in a row',
    disposition: 'retry',
    remedy: `${NEXT_RUN}. Other clients seem to use the quota: lower API_REQUESTS_PER_SECOND, or ask their owners.`,
  },
  quota_unavailable: {
    meaning: 'the store of the quota (Redis or the state database) does not answer',
    disposition: 'retry',
    systemic: 'wait',
    remedy: `Nothing is sent without the quota: check Redis or PostgreSQL. ${NEXT_RUN}`,
  },
  limiter_closed: {
    meaning: 'the process is shutting down',
    disposition: 'retry',
    remedy: NEXT_RUN,
  },
  queue_unreachable: {
    meaning: 'Redis does not answer',
    disposition: 'retry',
    remedy: 'Check REDIS_URL and that Redis is running.',
  },
  mirror_source: {
    meaning: 'a table, column, right or value of the mirror is not what the configuration needs',
    disposition: 'dead',
    exitCode: 2,
    remedy: 'Correct the configuration or the source, or grant the missing right, then: slotsync check',
  },
  mirror_read_only: {
    meaning: 'a source tries to write; the mirror is only read',
    disposition: 'dead',
    exitCode: 2,
    remedy:
      'Correct the source: remove the function that writes from the query or view, then: slotsync check',
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
    remedy: `Check MIRROR_DATABASE_URL and that the server is running. ${WHEN_BACK}`,
  },
  mirror_failed: {
    meaning: 'a statement failed at the mirror',
    disposition: 'retry',
    remedy: `${NEXT_RUN}. If it happens again, read the log of the mirror’s server.`,
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
    remedy: `Check STATE_DATABASE_URL (default: MIRROR_DATABASE_URL). ${WHEN_BACK}`,
  },
  state_failed: {
    meaning: 'a statement failed at the state database',
    disposition: 'retry',
    remedy: `${NEXT_RUN}. If it happens again, read the log of the state database’s server.`,
  },
  key_not_unique: {
    meaning: 'several rows have the same key',
    disposition: 'dead',
    remedy: CORRECT_KEY,
  },
  key_null: {
    meaning: 'the key is null in some rows',
    disposition: 'dead',
    remedy: CORRECT_KEY,
  },
  key_order: {
    meaning: 'the mirror does not return its keys in the order of their UTF-8 bytes',
    disposition: 'dead',
    remedy: 'The mirror’s database must be encoded in UTF-8. Then: slotsync check',
  },
  external_ids_not_unique: {
    meaning: 'more than 1000 external ids are shared by several rows',
    disposition: 'dead',
    remedy: 'Correct `externalId`: name the columns that identify a row, then: slotsync check',
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
    meaning: 'another process is reconciling',
    disposition: 'defer',
    remedy: 'Wait until it has ended: slotsync status',
  },
  interrupted: {
    meaning: 'the process of a reconcile run ended before the run did',
    disposition: 'retry',
    remedy: 'The next reconcile run reads everything again: slotsync reconcile',
  },
  run_cancelled: {
    meaning: 'the run was cancelled',
    disposition: 'dead',
    remedy: 'Action: none. To start another: slotsync sync, slotsync reconcile',
  },
  run_lost: {
    meaning: 'the run is no longer in the state',
    disposition: 'dead',
    remedy: 'Its row was deleted. Start another: slotsync sync',
  },
  not_found: {
    meaning: 'no row, record or booking has this key',
    disposition: 'dead',
    remedy: 'Write the key as `slotsync failures` and the tables in schema slotsync show it.',
  },
  triggers_busy: {
    meaning: 'a table is written to all the time, so its trigger could not be changed',
    disposition: 'retry',
    remedy: 'Nothing was changed for this table. Run the same command again when fewer writes arrive.',
  },
  triggers_failed: {
    meaning: 'a trigger could not be created or removed',
    disposition: 'dead',
    remedy: 'Let the owner of the table run the output of: slotsync triggers print',
  },
  embedded_postgres_failed: {
    meaning: 'the embedded PostgreSQL of the demo could not be started',
    disposition: 'dead',
    remedy: 'Read the lines of PostgreSQL above.',
  },
  reference_missing: {
    meaning: 'the record refers to a record that is not at the service yet',
    disposition: 'defer',
    remedy: 'Action: none. It is sent automatically by the run after that record is accepted: slotsync sync',
  },
  still_reserved: {
    meaning: 'the row was deleted, and the object has future bookings',
    disposition: 'defer',
    remedy:
      'Action: none. It is retired automatically by the first run after its bookings are over or cancelled: slotsync sync',
  },
  external_id_shared: {
    meaning: 'several rows have the same external id; none of them is sent',
    disposition: 'retry',
    remedy: 'Correct one of the rows, or the template of the external id, then: slotsync sync',
  },
  mapping_failed: {
    meaning: 'a mapping function threw, or a value cannot be sent',
    disposition: 'dead',
    remedy: CORRECT_ROW,
  },
  retirement_refused: {
    meaning: 'the row was deleted, and the service refused to make the object inactive',
    disposition: 'dead',
    remedy:
      'Correct it at the service: remove what uses the object, then: {retry}. If the row is restored, it is sent automatically.',
  },
  external_id_changed: {
    meaning: 'the row now has another external id than the one the service accepted',
    disposition: 'dead',
    remedy: 'Deactivate the former object at the service if it is not needed, then: {retry}',
  },
  external_id_taken: {
    meaning: 'an object of another type has this external id',
    disposition: 'dead',
    remedy: 'Correct the template, or the object at the service, then: {retry}',
  },
  reference_never_came: {
    meaning: 'the record it refers to was not accepted within `waitDays`',
    disposition: 'dead',
    remedy:
      'Correct the other row or add it, and this record is sent automatically once it is accepted. To try now: {retry}',
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

/** What to do about a command or run that ended with this code. */
export function remedyFor(code: string | null): string {
  return errorEntry(code).remedy.replace('{retry}', 'slotsync retry');
}

/** What to do about a record with this code. `retryCommand` is that record's. */
export function recordRemedy(code: string | null, retryCommand: string): string {
  const { remedy, recordRemedy: ofRecord = remedy } = errorEntry(code);
  return ofRecord.replace('{retry}', retryCommand);
}
