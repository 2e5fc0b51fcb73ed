// Lists every error code once: its meaning, what happens next, and the remedy. An error, a failed run and a record's
// error_code all use these codes. A test compares docs/operations.md with this list.

/** Next step after an error: retry, wait without using up an attempt, or stop until an operator or a change acts. */
export type Disposition = 'retry' | 'defer' | 'dead';

export interface ErrorEntry {
  meaning: string;
  /** Next step. A record with this code has the status `failed` (retry), `deferred` (defer) or `dead`. */
  disposition: Disposition;
  /** If true, a record with this code is sent again only when its row changes or an operator retries it. */
  isGivenUp?: true;
  /** Exit code of a command that ends with this error. The default is 1. */
  exitCode?: 2;
  /**
   * Set if the cause lies outside any record, so that the error counts towards the circuit breaker. `wait`: waiting
   * uses up no attempt. `retry`: waiting uses up attempts, since a single batch may be the cause. `compare`: as `wait`
   * while no other batch succeeds, as `retry` while others do.
   */
  systemic?: 'wait' | 'retry' | 'compare';
  /** Remedy for a command or run that ends with this code, and for a record unless `recordRemedy` is set. */
  remedy: string;
  /** Remedy for a record. `{retry}` becomes the command that retries it, `{link}` the one that links its object. */
  recordRemedy?: string;
}

const NEXT_RUN = 'The next run tries again: slotsync sync';
const WHEN_BACK =
  'Nothing is lost. Once it answers again, repeat the command. To send what a run left unsent: slotsync sync';
const CORRECT_KEY =
  'Correct `key` in the configuration, or the source, then: slotsync check. Nothing of this stream was sent.';
const CORRECT_ROW = 'Correct the row, and the next run sends it. To send it again unchanged: {retry}';

type More = Pick<ErrorEntry, 'systemic' | 'recordRemedy'>;

const entry =
  (always: Pick<ErrorEntry, 'disposition' | 'isGivenUp' | 'exitCode'>) =>
  (meaning: string, remedy: string, more: More = {}): ErrorEntry => ({ meaning, remedy, ...always, ...more });
const retry = entry({ disposition: 'retry' });
/** Entry for a system that does not answer. `more`: further sentences of the remedy. */
const away = (meaning: string, systemic: NonNullable<More['systemic']>, more = '') =>
  retry(meaning, WHEN_BACK + more, {
    systemic,
    recordRemedy: `Nothing is lost. Once it answers again: slotsync sync${more}`,
  });
const defer = entry({ disposition: 'defer' });
const dead = entry({ disposition: 'dead' });
const givenUp = entry({ disposition: 'dead', isGivenUp: true });
/** Entry for wrong settings, configuration, credentials or rights. */
const setup = entry({ disposition: 'dead', exitCode: 2 });

export const ERRORS = {
  usage: setup('wrong use, settings or configuration', ''),
  configuration: setup(
    'the service does not know a type or field, a stream is no longer in the configuration, or a function of the dialect fails',
    'Correct the configuration, or create the names at the service, then: slotsync check, slotsync sync',
  ),
  configuration_changed: dead(
    'no process has the configuration of the run any more',
    'The next run sends the rest: slotsync sync',
  ),
  unauthorized: setup(
    'the service did not accept the key, or does not permit the request',
    'Check API_KEY, API_ORGANIZATION_ID, API_REGION (EU_EES, ANZ, SGP or UK) and API_BASE_URL, then: slotsync check',
    { systemic: 'wait' },
  ),
  forbidden: setup(
    'the service forbids this kind of request for this key, and permits others; a run holds the records that need it, and ends with exit code 3',
    'Grant the key the right at the service, then: slotsync sync',
  ),
  destination_changed: setup(
    'the state was bound to another service or organization while the process was silent',
    'Stop the process, or correct API_BASE_URL and API_ORGANIZATION_ID and start it again: slotsync check',
    { systemic: 'wait' },
  ),
  redirected: setup(
    'the service has another address',
    'Set API_BASE_URL to the address the service redirects to, then: slotsync check',
  ),
  refused: givenUp(
    'the service refused the request or the object',
    'Compare the service’s reason with docs/service-contract.md, then: slotsync check',
    { recordRemedy: CORRECT_ROW },
  ),
  refused_413: givenUp(
    'a request, or one object alone, is larger than the service or a gateway accepts',
    'Set a smaller `batchSize` for the stream in the configuration, or leave it out, then: slotsync check',
    {
      recordRemedy:
        'The object alone is too large, so `batchSize` does not help. Shorten the values of its row, or have the limit raised, then: {retry}',
    },
  ),
  service_unreachable: away(
    'the service does not answer',
    'wait',
    '. Check API_BASE_URL and the network path (proxy, firewall, DNS).',
  ),
  service_failed: away('the service answered 5xx, 408 or 425', 'retry'),
  gateway_answered: away(
    'a gateway or proxy answered instead of the service: the body is not its JSON',
    'compare',
    '. If it lasts, check API_BASE_URL and the proxies on the way.',
  ),
  answer_lost: away(
    'a request was sent and no answer arrived; the service may have executed a write',
    'retry',
  ),
  answer_invalid: retry(
    'the answer of the service, or what it says of the object, does not match docs/service-contract.md',
    `${NEXT_RUN}. If it happens again: slotsync check --wire`,
    {
      recordRemedy: `${NEXT_RUN}. If it happens again, correct the named value at the service, or: slotsync check`,
    },
  ),
  answer_too_large: retry(
    'an answer of the service is too large, even in parts',
    `${NEXT_RUN}. Find out why the object or booking in the message is so large. If the message names none, lower \`service.pageSize\`.`,
  ),
  reading_moved: retry('objects were added or removed at the service while they were read', NEXT_RUN),
  answer_contradicts: retry(
    'the service answers for an object with another external id, with the number of another object, or twice',
    `${NEXT_RUN}. If the message shows two spellings of one id, slotsync check proposes \`service.externalIds\``,
    {
      recordRemedy: `${NEXT_RUN}, which reads the object, and sends it if the row has changed. If the message shows two spellings of one id, slotsync check proposes \`service.externalIds\``,
    },
  ),
  answer_incomplete: retry('the service gave no final answer for some objects', NEXT_RUN),
  service_fails_on_object: retry(
    'the service fails on this object each time, and answers for others',
    'Every run tries again, and sends the object alone: slotsync sync. Find the value in the row or the object that the service cannot handle, or report the object to the operator of the service.',
  ),
  throttled: defer(
    'the service answered 429 thirty times in a row',
    `${NEXT_RUN}. Other clients seem to use the quota: lower API_REQUESTS_PER_SECOND, or ask their owners.`,
  ),
  quota_unavailable: retry(
    'the store of the quota (Redis or the state database) does not answer',
    `Nothing is sent without the quota: check Redis or PostgreSQL. ${NEXT_RUN}`,
    { systemic: 'wait' },
  ),
  worker_ended: retry(
    'the process stopped working the queue without being asked to',
    'Restart the worker: slotsync worker. Its log has the cause, and its /healthz answers 503. Other workers continue.',
  ),
  limiter_closed: retry('the process is shutting down', NEXT_RUN),
  queue_unreachable: retry('Redis does not answer', `Check REDIS_URL and that Redis is running. ${NEXT_RUN}`),
  mirror_source: setup(
    'a table, column, right or value of the mirror is not what the configuration needs',
    'Correct the configuration or the source, or grant the missing right, then: slotsync check',
  ),
  mirror_row_security: setup(
    'a policy of row-level security would hide rows of a source from the role of the mirror',
    "To read every row, let a superuser grant BYPASSRLS to the role of the mirror. To read only the visible rows, set `rowSecurity: 'filtered'`. Then: slotsync check",
  ),
  mirror_read_only: setup(
    'a source tries to write, but slotsync only reads the mirror',
    'Correct the source: remove the function that writes from the query or view, then: slotsync check',
  ),
  mirror_refused: setup(
    'the mirror refused the connection',
    'Check MIRROR_DATABASE_URL, then: slotsync check',
    { systemic: 'wait' },
  ),
  mirror_unreachable: retry(
    'the mirror does not answer',
    `Check MIRROR_DATABASE_URL and that the server is running. ${WHEN_BACK}`,
    { systemic: 'wait' },
  ),
  mirror_failed: retry(
    'a statement failed at the mirror',
    `${NEXT_RUN}. If it happens again, read the log of the mirror’s server.`,
  ),
  mirror_timeout: retry(
    'a statement took too long at the mirror, or was cancelled there',
    `${NEXT_RUN}. Make the view or query of the stream faster, or raise MIRROR_STATEMENT_SECONDS.`,
  ),
  mirror_raised: dead(
    'a function or a subquery of the source raised an error',
    'Correct the row or the function it comes from, then: slotsync sync',
  ),
  row_too_large: givenUp(
    'a row of the mirror is larger as text than `rowLimitMegabytes`, and is not read',
    'Correct the row, or leave its large column out with a query in `from`, and the next run sends it. With a higher `rowLimitMegabytes`: {retry}',
  ),
  state_refused: setup(
    'the state database refused the connection',
    'Check STATE_DATABASE_URL (default: MIRROR_DATABASE_URL), then: slotsync check',
  ),
  state_rights: setup(
    'the role of STATE_DATABASE_URL lacks a right that the command needs',
    'Run it as the role that owns the schema slotsync. docs/security.md lists the rights of each role. Then: slotsync check',
  ),
  state_unreachable: retry(
    'the state database does not answer',
    `Check STATE_DATABASE_URL (default: MIRROR_DATABASE_URL). ${WHEN_BACK}`,
    { systemic: 'wait' },
  ),
  state_failed: retry(
    'a statement failed at the state database',
    `${NEXT_RUN}. If it happens again, read the log of the state database’s server.`,
  ),
  state_timeout: retry(
    'a statement took too long at the state database, or was cancelled there',
    `${NEXT_RUN}. If it happens again, either another session keeps a lock (see pg_blocking_pids), or the server is too slow and STATE_STATEMENT_SECONDS should be raised.`,
  ),
  state_read_only: retry(
    'the state database permits no writes: it is a standby, or default_transaction_read_only is on',
    `Name the primary in STATE_DATABASE_URL. If that server is the primary, switch default_transaction_read_only off for the server, the database or the role. Nothing is lost. Then: slotsync sync`,
    { systemic: 'wait' },
  ),
  state_locked: retry(
    'another session kept a lock of the state for a minute',
    'Run the same command again when that session has ended. If nobody needs that session, end it: SELECT pg_terminate_backend(<server process>)',
  ),
  key_not_unique: dead('several rows have the same key', CORRECT_KEY),
  key_null: dead('the key is null in some rows', CORRECT_KEY),
  key_reserved: dead('a key starts with `#former `, which is reserved', CORRECT_KEY),
  key_order: dead(
    'the mirror does not return its keys in the order of their UTF-8 bytes',
    'The mirror’s database must be encoded in UTF-8. Then: slotsync check',
  ),
  external_ids_not_unique: dead(
    'more than 1000 external ids are shared by several rows',
    'Correct `externalId`: name the columns that identify a row, then: slotsync check',
  ),
  claimed: defer('another batch is writing some of these records', NEXT_RUN),
  claim_lost: defer('another batch took over some of these records', NEXT_RUN),
  run_stopped: defer(
    'the run was paused or cancelled, the stream frozen, or too much of it refused, while a batch was being sent',
    `${NEXT_RUN}. A paused run goes on with: slotsync resume`,
  ),
  outcomes_missing: retry(
    'a run ended with fewer outcomes than records it planned',
    `${NEXT_RUN}. Rows of slotsync.batches were changed or deleted by another program: look for it.`,
  ),
  state_restored: dead(
    'the state was restored, or is on another server, so it does not know what was sent since',
    'Read back what the service holds, and send again what differs: slotsync verify --repair',
  ),
  source_stale: dead(
    'the load time of the mirror is too old, earlier than the previous load time, in the future, or unknown',
    'Load the mirror, or correct `freshness` (slotsync check), then: slotsync sync',
  ),
  reconcile_running: defer('another process is reconciling', 'Wait until it has ended: slotsync status'),
  verify_running: defer(
    'another process is verifying',
    'Wait until it has ended: slotsync runs --kind verify',
  ),
  interrupted: retry(
    'the process ended during a run that only reads',
    'The next run reads everything again: slotsync reconcile, slotsync verify',
  ),
  run_cancelled: dead(
    'the run was cancelled',
    'No action needed. To start another: slotsync sync, slotsync reconcile, slotsync verify',
  ),
  run_lost: dead(
    'the run is no longer in the state',
    'The row of the run was deleted. Start another run: slotsync sync',
  ),
  not_found: dead(
    'no row, record or booking has this key',
    'Write the key as `slotsync failures` and the tables in schema slotsync show it.',
  ),
  triggers_busy: retry(
    'a table is written to all the time, so its trigger could not be changed',
    'Nothing was changed for this table. Run the same command again when fewer writes arrive.',
  ),
  triggers_failed: dead(
    'a trigger could not be created or removed',
    'Let the owner of the table run the output of: slotsync triggers print',
  ),
  embedded_postgres_failed: dead(
    'the embedded PostgreSQL of the demo could not be started',
    'Read the lines of PostgreSQL above, then: slotsync demo',
  ),
  reference_missing: defer(
    'the record refers to a record that is not at the service yet',
    'No action needed: the next sync after that record is accepted sends it. To do it now: slotsync sync',
  ),
  reference_circle: defer(
    'records of a stream refer to each other in a circle: this one is sent without the reference, and later with it',
    'No action needed: the run that sends the other record sends this one again. If the other is refused, correct it, then: slotsync sync',
  ),
  still_reserved: defer(
    'the row was deleted, but the object has future bookings',
    'No action needed: the first sync after its bookings are over or cancelled deactivates it. To do it now: slotsync sync. If its row has another key now, let the object follow it: slotsync rename',
  ),
  retirement_postponed: defer(
    'the row was deleted, and creates or updates of its stream are held, failed, given up or in doubt',
    'Approve the held records, and correct those that failed or were given up (slotsync failures), then: slotsync sync',
  ),
  external_id_shared: retry(
    'several rows have the same external id; none of them is sent',
    'Correct one of the rows, or the template of the external id, then: slotsync sync',
  ),
  mapping_failed: givenUp(
    'a mapping function threw an error, or a value cannot be sent',
    'Correct the row, the mapping or the lookup, and the next run sends it. To send it again unchanged: {retry}',
  ),
  key_too_long: dead(
    'the key of the record, or of a record that it refers to, is longer than 1024 bytes',
    'Shorten the key in the source, or name another column in `key`, then: slotsync sync',
  ),
  external_id_too_long: dead(
    'the external id is longer than 1024 bytes',
    'Shorten the value in the source, or name another column in `externalId`, then: slotsync sync',
  ),
  retirement_refused: givenUp(
    'the row was deleted, but the service refused to deactivate the object',
    'At the service, remove what uses the object, then: {retry}. If the row is restored, it is sent automatically.',
  ),
  external_id_changed: givenUp(
    'the row now has another external id than the one the service accepted',
    'If the row still means the same thing, keep its object and bookings under the former external id: {link}. If not, create a new object: {retry}. To deactivate the former one too: {retry} --retire-former',
  ),
  external_id_changed_there: givenUp(
    'the object has another external id at the service than the one it was accepted with',
    'Restore the former external id at the service, or change the row to the new one, then: {retry}',
  ),
  external_id_taken: givenUp(
    'an object of another type has this external id',
    'Correct the object at the service (another external id, the type, or remove it), the template or `subtypes`, or set `service.canChangeTypes`, then: {retry}',
  ),
  match_ambiguous: givenUp(
    'several objects at the service, or several rows, have the same values of the fields in `match`',
    'Look at them: slotsync match. Link the right one from a file (slotsync match --apply), or make the values differ, then: {retry}',
  ),
  match_unassignable: givenUp(
    'the object that `match` found has no external id, and `service.assignExternalIds` is off',
    'Give the object an external id at the service, or set `service.assignExternalIds`, then: {retry}',
  ),
  link_broken: givenUp(
    'the object that the record is linked to is no longer at the service, or has another external id now',
    'Restore the object or its external id at the service. Or undo the link (slotsync match --unlink), and link the object again under its new id: slotsync match. Without a link, a second object is created. Then: {retry}',
  ),
  reference_never_came: givenUp(
    'the record that this record refers to was not accepted within `waitDays`',
    'Correct the other row or add it, and this record is sent automatically once it is accepted. To try now: {retry}',
  ),
  unexpected: retry(
    'an unexpected error',
    `${NEXT_RUN}. If it happens again, report what the log says of it.`,
  ),
};

export type ErrorCode = keyof typeof ERRORS;

/** Returns the code in the catalogue, without an HTTP status: `refused` for `refused_400`. */
function baseOf(code: string): string {
  return Object.hasOwn(ERRORS, code) ? code : code.replace(/_\d{3}$/, '');
}

export const isKnownCode = (code: string): boolean => Object.hasOwn(ERRORS, baseOf(code));

/** Returns the entry of a code, which may end with an HTTP status (`refused_400`). Unknown codes are `unexpected`. */
export function errorEntry(code: string | null): ErrorEntry {
  const base = baseOf(code ?? '');
  return Object.hasOwn(ERRORS, base) ? ERRORS[base as ErrorCode] : ERRORS.unexpected;
}

/** Returns the remedy for a command or run that ended with this code. */
export function remedyFor(code: string | null): string {
  return errorEntry(code)
    .remedy.replaceAll('{retry}', 'slotsync retry')
    .replaceAll('{link}', 'slotsync match --link');
}

/** Returns the remedy for a record. `retryCommand` returns the command that retries the record. */
export function recordRemedy(
  code: string | null,
  retryCommand: (option?: string) => string,
  linkCommand = 'slotsync match --link …',
): string {
  const { remedy, recordRemedy: ofRecord = remedy } = errorEntry(code);
  return ofRecord
    .replaceAll('{link}', () => linkCommand)
    .replaceAll(/\{retry\}(?: (--[a-z-]+))?/g, (_, option?: string) => retryCommand(option));
}

/** Returns true if a record with this code is sent again only when its row changes or an operator retries it. */
export const isGivenUpByCode = (code: string | null): boolean => errorEntry(code).isGivenUp ?? false;
