// All commands with their arguments, options and help. A command's module is imported only when the command runs.
import { Option, type Command } from 'commander';
import type { Need } from '../config/settings.js';
import { UsageError } from '../errors/errors.js';
import { common, withApp, withoutApp } from './command.js';
import { runNumber, wholeNumber } from './read-options.js';

const STATE: readonly Need[] = ['state'];
/** Values of `failures --status`. Records never have the status `held`. It selects keys that a gate holds. */
const FAILED_STATUSES = ['dead', 'failed', 'deferred', 'pending', 'held'];
const EVERYTHING: readonly Need[] = ['mirror', 'state', 'api'];

export function addCommands(program: Command): void {
  program
    .command('demo')
    .description('sync a sample university into the sandbox, with its own PostgreSQL; requires only Node')
    .option('--keep', 'keep database and sandbox running until Ctrl-C')
    .addOption(number('--seed <number>', 'seed of the generated university', { min: 0 }).default(1))
    .option('--json', 'print one JSON document instead of text')
    .action(withoutApp(async () => (await import('./demo.js')).demo));

  common(program.command('migrate'))
    .description('create or update the state tables (schema slotsync); safe to run at any time')
    .action(withApp({ needs: STATE }, async () => (await import('./migrate.js')).migrateState));

  common(program.command('discover'))
    .description('list the types, fields and object counts of the service; needs no configuration')
    .option(
      '--types <file>',
      'write the names as TypeScript, such as service.d.ts, for defineConfig<Service>',
    )
    .action(
      withApp({ needs: ['api'], isUnconfigured: true }, async () => (await import('./discover.js')).discover),
    );

  common(program.command('init'))
    .description('write a first sync.config.ts from the mirror’s tables and the service’s types')
    .option(
      '--tables <tables>',
      'tables to include, separated by commas, as table or table=type; tables that they refer to are added',
    )
    .option('--yes', 'include every table that resembles a type, without asking')
    .option('--out <file>', 'file to write, which must not exist yet', 'sync.config.ts')
    .addHelpText(
      'after',
      [
        '\nOn a terminal it asks which tables. What it could not decide is a comment in the',
        'file that begins with "unsure". The file uses the names in service.d.ts beside',
        'it, if slotsync discover --types wrote one. Reads both sides and writes only the',
        'file.',
      ].join('\n'),
    )
    .action(
      withApp(
        { needs: ['mirror', 'api'], isUnconfigured: true },
        async () => (await import('./init.js')).init,
      ),
    );

  common(program.command('check'))
    .description(
      'check settings, mirror, sources, credentials, types, fields and assumptions about the service; writes nothing at the service without --write-probe',
    )
    .option('--rows', 'also map every row, and list the reasons why rows cannot be sent')
    .option(
      '--write-probe <number>',
      'also test writing with the object of this number: as read, without one field, and restored; an object without an external id gets one',
    )
    .option('--yes', 'write that object without asking')
    .option(
      '--wire',
      'instead, send one request to each endpoint, and show the shape and the reading of each answer',
    )
    .option('--values', 'with --wire: show values too')
    .option('--record <file>', 'like --wire, and record the shapes in a file, without values')
    .option('--against <file>', 'like --wire, and list changes since the file was recorded')
    .option('--external-id <id>', 'external id for --write-probe (default: its link’s, or slotsync_<number>)')
    .action(withApp({ needs: EVERYTHING }, async () => (await import('./check.js')).check));

  common(program.command('plan'))
    .argument('[streams...]', 'streams to plan (default: all)')
    .addOption(number('--limit <records>', 'plan for at most this many writes and no deactivation'))
    .option('--full', 'show every operation field by field, not only samples')
    .option('--out <file>', 'write every operation field by field to a file: .csv or .jsonl')
    .description('show what sync would do, with samples field by field; writes nothing at the service')
    .action(withApp({ needs: EVERYTHING }, async () => (await import('./plan.js')).plan));

  noted(program.command('match'))
    .argument('[streams...]', 'streams to compare (default: all); with --link and --unlink, local keys')
    .description('find objects that already exist at the service, and link rows to them; sends nothing')
    .option(
      '--by <fields>',
      'field ids, separated by commas, whose values identify an object (default: `match`)',
    )
    .option('--out <file>', 'write every finding to a CSV file, for review and editing')
    .option('--apply <file>', 'link the rows of class match in that file')
    .option(
      '--link <stream>',
      'keep the objects of these keys, although their rows now give other external ids',
    )
    .option('--unlink <stream>', 'remove the links of these keys')
    .action(withApp({ needs: EVERYTHING }, async () => (await import('./match.js')).match));

  runOptions(common(program.command('sync')))
    .argument('[streams...]', 'streams to sync (default: all)')
    .description('bring the service up to date with the mirror, once')
    .addOption(number('--limit <records>', 'write at most this many records, and deactivate none'))
    .option(
      '--strict',
      'exit with 1 while any record of these streams is failed or given up, even since an earlier run',
    )
    .addOption(
      number(
        '--timeout <minutes>',
        'stop after this time with exit code 1; workers or the next sync continue',
        { max: 10_000 },
      ),
    )
    .action(withApp({ needs: EVERYTHING }, async () => (await import('./sync.js')).sync));

  runOptions(common(program.command('backfill')))
    .argument('[streams...]', 'streams to compare (default: all)')
    .description('compare a chosen part of the mirror, or all of it, outside the schedule, at lower priority')
    .option('--from <value>', 'rows whose cursor is this value or later')
    .option('--to <value>', 'rows whose cursor is before this value')
    .option('--keys <keys>', 'rows with these local keys, separated by commas')
    .option('--keys-file <file>', 'rows with the local keys in this file, one per line')
    .option('--where <sql>', 'rows that meet a condition on the source’s columns')
    .option('--force', 'also send unchanged and given up records')
    .addOption(number('--limit <records>', 'write at most this many records'))
    .option('--resume', 'continue the latest unfinished backfill')
    .addHelpText(
      'after',
      '\nA backfill never deactivates anything; sync does. Stopped by Ctrl-C, it keeps\nits position: the same command continues it.',
    )
    .action(withApp({ needs: EVERYTHING }, async () => (await import('./backfill.js')).backfill));

  common(program.command('worker'))
    .description(
      'process the queue and the inbox, and start the nightly syncs, until stopped; several workers may run',
    )
    .addOption(concurrency())
    .addOption(
      number('--grace <seconds>', 'time to finish the work in flight when stopped', {
        min: 0,
        max: 3600,
        unit: 'of seconds ',
      }).default(30),
    )
    .addHelpText(
      'after',
      '\nWith HTTP_PORT set: the operator’s page, /healthz, /readyz and /metrics on that\nport, at HTTP_HOST (default: 127.0.0.1).',
    )
    .action(
      withApp(
        { needs: EVERYTHING, logLevel: 'info', isObserved: true },
        async () => (await import('./worker.js')).worker,
      ),
    );

  common(program.command('page'))
    .description('serve the operator’s page until Ctrl-C, without processing runs')
    .addOption(
      number('--port <port>', 'port to listen on; 0: a free one (default: HTTP_PORT, or 8080)', PORT),
    )
    .addHelpText(
      'after',
      '\nA worker with HTTP_PORT serves the same page. Without HTTP_TOKEN it is\nread-only. docs/page.md says how to reach it from another machine.',
    )
    .action(withApp({ needs: STATE, logLevel: 'info' }, async () => (await import('./page.js')).page));

  common(program.command('push'))
    .argument('<stream>', 'the stream of the keys')
    .argument(
      '<keys...>',
      'local keys whose rows changed or were deleted; - reads them from standard input, one per line',
    )
    .description('put keys into the inbox; a worker processes them at once')
    .action(withApp({ needs: ['mirror', 'state'] }, async () => (await import('./push.js')).push));

  noted(program.command('triggers'))
    .argument('<action>', 'install, remove or print')
    .argument('[streams...]', 'streams (default: all whose source is a table)')
    .description(
      'triggers on the mirror’s tables that put changed keys into the inbox; print shows them as SQL',
    )
    .action(withApp({ needs: ['mirror', 'state'] }, async () => (await import('./triggers.js')).triggers));

  common(program.command('status'))
    .argument(
      '[part...]',
      'number of a concern, or a part such as runs, inbox or notices, to show its details',
    )
    .description('show what is synced, running, held or waiting, and why; reads only the state')
    .option('--full', 'everything, with all details')
    .option('--all', 'include incremental runs')
    .addOption(
      number('--watch [seconds]', 'redraw every 2 seconds, until q is pressed', {
        unit: 'of seconds ',
      }),
    )
    .action(withApp({ needs: STATE }, async () => (await import('./status.js')).status));

  common(program.command('runs'))
    .argument('[run]', 'number of one run, to show its details', runNumber)
    .description('the latest runs and their results')
    .addOption(number('--limit <runs>', 'maximum number of runs to show').default(20))
    .option('--kind <kind>', 'only runs of one kind, such as backfill')
    .option('--all', 'include incremental runs')
    .action(withApp({ needs: STATE }, async () => (await import('./runs.js')).runs));

  common(program.command('failures'))
    .argument('[stream]', 'only of this stream')
    .description('why records are not in sync, by root cause, with what waits for it and what happens next')
    .option('--stream <name>', 'only of this stream')
    .addOption(choice('--status <status>', 'only with this status', FAILED_STATUSES))
    .option('--code <code>', 'only with this error code; for held records, the operation')
    .option('--since <time>', 'only records with this status since then: 12h, 90m, 7d, a day or an ISO time')
    .option('--all', 'list each record, with the chain of records that it waits for')
    .addOption(
      number('--limit <number>', 'causes to show (default: 50), or records with --all (default: all)'),
    )
    .option('--out <file>', 'write the list to a CSV file')
    .action(withApp({ needs: STATE }, async () => (await import('./failures.js')).failures));

  common(program.command('report'))
    .argument('[run]', 'number of one run (default: since the last nightly sync was due)', runNumber)
    .description('report changes, holds, what needs a person and why, and requests')
    .option('--since <time>', 'a duration such as 12h or 7d, a day, or an ISO time')
    .option('--text', 'plain text of 80 columns (the default)')
    .option('--html', 'one HTML document without assets, to be mailed or printed')
    .option('--out <file>', 'write it to a file')
    .action(withApp({ needs: STATE }, async () => (await import('./report.js')).report));

  common(program.command('actions'))
    .option('--run <run>', 'only on this run', runNumber)
    .option('--since <time>', 'only since then: 12h, 90m, 7d, a day or an ISO time')
    .addOption(number('--limit <actions>', 'maximum number of actions to show').default(50))
    .description('list what operators did, when and why: approvals, rejections, retries, links and more')
    .action(withApp({ needs: STATE }, async () => (await import('./actions.js')).actions));

  common(program.command('alerts'))
    .argument('[action]', 'check or test (default: list the open alerts)')
    .description('list open alerts and whether they were sent')
    .addHelpText(
      'after',
      [
        '\nWorkers decide and send alerts: docs/alerts.md.',
        'alerts test   sends a message to each channel, and says how each one went',
        'alerts check  decides and sends once, as a worker does, for a cron job on',
        '              another host; exit code 1 while a cause is there',
      ].join('\n'),
    )
    .action(withApp({ needs: STATE }, async () => (await import('./alerts.js')).alerts));

  noted(program.command('retry'))
    .argument('[stream]', 'the stream of the records')
    .argument('[keys...]', 'local keys (default: every given up or failed record of the stream)')
    .description(
      'send given up or failed records again with the next run, although their rows did not change',
    )
    .option('--all', 'of every stream')
    .option('--code <code>', 'only with this error code')
    .addOption(choice('--status <status>', 'only with this status', ['dead', 'failed']))
    .option(
      '--retire-former',
      'only records whose external id changed: deactivate their former objects with the next sync',
    )
    .action(withApp({ needs: STATE }, async () => (await import('./retry.js')).retry));

  noted(program.command('take'))
    .argument('<stream>', 'the stream of the record')
    .argument('<key>', 'local key')
    .argument('[fields...]', 'field ids (default: every field whose rule keeps values of the service)')
    .description('overwrite once, from the mirror, fields that keep what people entered at the service')
    .action(withApp({ needs: STATE }, async () => (await import('./take.js')).take));

  noted(program.command('rename'))
    .argument('<stream>', 'the stream of both keys')
    .argument(
      '<old>',
      'local key whose row is gone from the mirror; of a composite key as slotsync failures prints it',
    )
    .argument('<new>', 'local key that the row has now')
    .description('keep the object of a row whose key changed, with its bookings')
    .action(withApp({ needs: ['mirror', 'state'] }, async () => (await import('./rename.js')).rename));

  noted(program.command('rename-stream'))
    .argument('<old>', 'name that the stream had; it is not in the configuration any more')
    .argument('<new>', 'name that the stream has in the configuration now')
    .description('move the state and the triggers of a stream to its new name')
    .action(withApp({ needs: ['mirror', 'state'] }, async () => (await import('./rename.js')).renameStream));

  holdOptions(runOptions(noted(program.command('approve'))))
    .argument('<run>', 'number of the run that holds something', runNumber)
    .option('--exactly', 'approve only the records that are held now; others are held again')
    .description('approve the changes that a run holds, up to their number, and sync the whole streams')
    .action(withApp({ needs: EVERYTHING }, async () => (await import('./approve.js')).approve));

  holdOptions(noted(program.command('reject')))
    .argument('<run>', 'number of the run that holds something', runNumber)
    .description('do not send the changes that a run holds, and cause no alert until its records change')
    .action(withApp({ needs: STATE }, async () => (await import('./approve.js')).reject));

  noted(program.command('pause'))
    .argument('[run]', 'number of the run (default: every unfinished run that is not incremental)', runNumber)
    .description('pause a run: requests in progress are answered, the rest is sent after resume')
    .action(withApp({ needs: STATE }, async () => (await import('./pause.js')).pause));

  noted(program.command('resume'))
    .argument('[run]', 'number of the run (default: every paused run that is not incremental)', runNumber)
    .description('resume a paused run')
    .action(withApp({ needs: ['state', 'api'] }, async () => (await import('./pause.js')).resume));

  common(program.command('freeze'))
    .argument('[streams...]', 'streams to freeze (default: all)')
    .description('write nothing of these streams until a time; planning, verify and reconcile continue')
    .requiredOption(
      '--until <time>',
      'a duration such as 14d, a day (its start), or a time such as 2026-06-07T18:00',
    )
    .requiredOption('--reason <text>', 'why; shown beside the waiting changes')
    .action(withApp({ needs: EVERYTHING }, async () => (await import('./freeze.js')).freeze));

  noted(program.command('unfreeze'))
    .argument('[streams...]', 'streams to write again (default: all); they need not be in the configuration')
    .description('end freezes before their time')
    .action(withApp({ needs: EVERYTHING }, async () => (await import('./freeze.js')).unfreeze));

  noted(program.command('except'))
    .argument('<stream>', 'the stream of the records')
    .argument('<keys...>', 'local keys; of a composite key as slotsync failures prints it')
    .option(
      '--until <time>',
      'a duration such as 14d, a day (its start), or a time (default: until --end); changes the end of an existing exception',
    )
    .option('--end', 'end the exceptions of these keys')
    .description('do not change the objects of single records, because somebody edits them by hand')
    .action(withApp({ needs: ['mirror', 'state'] }, async () => (await import('./except.js')).except));

  common(program.command('exceptions'))
    .description('list the exceptions: since when, by whom, until when and why')
    .action(withApp({ needs: STATE }, async () => (await import('./except.js')).exceptions));

  noted(program.command('cancel'))
    .argument('<run>', 'number of the run', runNumber)
    .description('cancel an unfinished run; what was accepted stays at the service')
    .action(withApp({ needs: STATE }, async () => (await import('./pause.js')).cancel));

  common(program.command('reconcile'))
    .description(
      'compare the bookings in the mirror with reservations and cancellations at the service; changes neither',
    )
    .option(
      '--from <time>',
      'a day or an ISO time (UTC unless it says otherwise), instead of the configured window',
    )
    .option('--to <time>', 'the end, in the same form')
    .option('--strict', 'exit with 1 if a booking is missing on either side')
    .action(withApp({ needs: EVERYTHING }, async () => (await import('./reconcile.js')).reconcileBookings));

  runOptions(noted(program.command('verify')))
    .argument('[streams...]', 'streams to verify (default: all)')
    .description('read back what the service holds, and report where it differs from what was accepted last')
    .addOption(number('--sample <records>', 'compare this many random records of each stream'))
    .option('--extras', 'also list objects of these types that belong to no record; they are not drift')
    .option('--repair', 'send differing objects again, within limits.repair')
    .option('--adopt', 'rebuild a lost state from mirror and service; writes nothing at the service')
    .option('--out <file>', 'write the differences to a CSV file, one line for each field')
    .addHelpText('after', '\nExit code 1 when an object drifts, 3 when its repair waits for approval.')
    .action(withApp({ needs: EVERYTHING }, async () => (await import('./verify.js')).verifyObjects));

  common(program.command('explain'))
    .argument('<stream>', "a stream, or 'reservations'")
    .argument(
      '<key...>',
      'local key, of a composite key its parts; or the external id, or # and the number at the service',
    )
    .description(
      'show one record or booking in the mirror, at the service and in the state, and the next step',
    )
    .option('--all', 'also show columns that the mapping does not read')
    .action(withApp({ needs: EVERYTHING }, async () => (await import('./explain.js')).explain));

  common(program.command('history'))
    .argument('<stream>', 'a stream')
    .argument('<key...>', 'local key; of a composite key its parts')
    .addOption(number('--limit <writes>', 'at most this many, newest first').default(20))
    .description('list the accepted writes of one record: when, by which run, and which fields')
    .action(withApp({ needs: STATE }, async () => (await import('./explain.js')).history));

  common(program.command('reset'))
    .option('--yes', 'without asking')
    .description(
      'start over or uninstall: remove the mirror’s triggers, the state tables and the queue; changes nothing at the service',
    )
    .addHelpText(
      'after',
      '\nShows what would be lost, and asks on a terminal. Refused while a process uses\nthe state. Removes everything or nothing.',
    )
    .action(withApp({ needs: STATE }, async () => (await import('./reset.js')).reset));

  noted(program.command('forget'))
    .argument('<stream>', "a stream, or 'reservations'")
    .argument('<key...>', 'local key; of a composite key its parts')
    .option('--force', 'even if its object is active at the service; no run deactivates it afterwards')
    .description('delete everything that the state holds about one key; its row must be gone from the mirror')
    .action(withApp({ needs: ['mirror', 'state'] }, async () => (await import('./forget.js')).forget));

  addSandbox(program);
}

function runOptions(command: Command): Command {
  return command.option('--detach', 'only queue the run; workers process it').addOption(concurrency());
}

function holdOptions(command: Command): Command {
  return command
    .option('--stream <name>', 'only of this stream')
    .option('--operation <operation>', 'only create, update, retire, overwrite or repair')
    .option('--gate <reason>', 'only what is held for this reason, such as limit or refused');
}

/** Adds `--reason` to a command whose actions are logged for `slotsync actions`. */
const noted = (command: Command): Command =>
  common(command).option('--reason <text>', 'why; noted with who and when: slotsync actions');

const SANDBOX_CONTROLS = `
Requests below /sandbox/ do what people do at the service. They need no key, and
are answered on this machine only. Times are Unix seconds; {id} is the number or
the external id.
  PUT    /sandbox/schema                     types and fields:
         {types: [{extId, name?, parent?}], fields: [{extId, name?, type?,
         mandatory?, maxLength?, reference?, storedAs?, derived?}]};
         extId null: without an external id
  GET    /sandbox/objects                    the objects it holds
  POST   /sandbox/objects                    {extId?, typeId, active?, fields?}:
         made by hand; without extId, an object without an external id
  PATCH  /sandbox/objects/{id}               {extId?, active?, fields?}: changes
         what is named
  DELETE /sandbox/objects/{id}               without a trace
  GET    /sandbox/reservations               {reservations, cancellations}
  POST   /sandbox/reservations               {extId?, begin, end, status?,
         objects?: [{typeId, objectId}], fields?}
  POST   /sandbox/reservations/{id}/move     {begin, end}
  POST   /sandbox/reservations/{id}/cancel   {extId?} of the cancellation, or no
         body
  POST   /sandbox/reservations/{id}/restore  no body
  POST   /sandbox/reservations/{id}/status   {status: ["C_PLANNED"]}
  DELETE /sandbox/reservations/{id}          without a cancellation

To hold requests, and let them go later:
  POST   /sandbox/gate          {path?: "objects", method?: "PUT",
         hold?: "request" | "answer", after?: 3}: lets 3 requests pass first
  GET    /sandbox/gate          {closed, held}: how many requests are held
  DELETE /sandbox/gate          lets them go
A held request is carried out when the gate opens. With hold "answer" it is
carried out at once, and its answer is held.

To make requests fail:
  POST   /sandbox/fail-next     {fault: "html", status: 404, path?: "objects",
         method?: "PUT", times?: 3 | "always"}
  DELETE /sandbox/fail-next     ends it
  PUT    /sandbox/pages         {missing: 1}: so many pages at the end of every
         find are empty, though they are counted
With fault "late" the connection is reset (afterMs: 200 | "asked"), and the
request is carried out later (delayMs: 6000):
  GET    /sandbox/late          {waiting}: how many requests wait
  POST   /sandbox/late/release  carries them out, without delayMs
  POST   /sandbox/late/reset    resets the connection, with afterMs "asked"

More: src/sandbox/control-requests.ts; examples: docs/service-contract.md.`;

function addSandbox(program: Command): void {
  common(program.command('sandbox'))
    .description('simulate the scheduling service on this machine; its data is lost when it ends')
    .addOption(number('--port <port>', 'port to listen on; 0: a free one', PORT).default(8377))
    .option('--host <host>', 'address to listen on', '127.0.0.1')
    .option('--contract <file>', 'answer every request with the answers that `check --record` recorded')
    .option('--organization <id>', 'the organization it accepts', 'demo')
    .option('--api-key <key>', 'the key it accepts', 'sandbox-key')
    .option('--region <region>', 'the region it accepts', 'EU_EES')
    .addOption(
      number('--rate <requests>', 'quota in requests per second; 0: no quota', { min: 0 }).default(20),
    )
    .addOption(
      choice('--window <kind>', 'how it counts a second', ['sliding', 'fixed', 'bucket']).default('sliding'),
    )
    .option('--no-retry-after', 'leave Retry-After out of a 429')
    .addOption(number('--token-seconds <seconds>', 'lifetime of a token', { min: 0 }).default(300))
    .option('--no-token-exp', 'leave exp out of the token')
    .addOption(
      choice('--expired-status <status>', 'answer to an expired token', ['401', '403']).default('401'),
    )
    .addOption(
      choice('--put-status <status>', 'answer to every PUT (default: 207 when an object was refused)', [
        '200',
        '207',
      ]),
    )
    .addOption(
      number('--max-objects <objects>', 'maximum number of objects in a PUT', { min: 0 }).default(1000),
    )
    .option(
      '--assign-external-ids',
      'take `id` beside `extId` in a PUT, and give that object the external id',
    )
    .option('--merges', 'keep what a PUT leaves out of an object')
    .option('--change-types', 'let a PUT give an object another type')
    .addOption(
      choice('--external-ids <way>', 'how similar external ids are compared (default: as different)', [
        'ignore-case',
        'lower-case',
        'trim',
        'normalize',
        'cut',
      ]),
    )
    .option('--no-field-search', 'refuse finds of objects by fields')
    .option('--no-modified', 'ignore the filter `modified` of finds')
    .option(
      '--speaks <file>',
      'a module that answers in another dialect, such as examples/dialects/keyed.sandbox.ts',
    )
    .addOption(number('--latency <ms>', 'time until an answer', { min: 0 }).default(0))
    .addOption(number('--jitter <ms>', 'random variation of that time', { min: 0 }).default(0))
    .addOption(
      fraction('--latency-per-object <ms>', 'more time for each object of a PUT or a find', {
        takes: 'milliseconds such as 0.3',
      }),
    )
    .addOption(share('--status500 <share>', 'share of requests answered with 500'))
    .addOption(share('--reset <share>', 'share of connections reset before the request is carried out'))
    .addOption(share('--lose-answer <share>', 'share of answers lost after the request is carried out'))
    .addOption(share('--broken-json <share>', 'share of answers that are not JSON'))
    .addOption(share('--hang <share>', 'share of requests that are never answered'))
    .addOption(share('--html <share>', 'share of requests that a gateway answers with an HTML page'))
    .addOption(number('--html-status <status>', 'status of these pages', { min: 0 }).default(502))
    .addOption(share('--late <share>', 'share of connections reset before the request is carried out later'))
    .addOption(number('--late-ms <ms>', 'how much later', { min: 0 }).default(5000))
    .addOption(number('--seed <number>', 'seed of the random faults', { min: 0 }).default(1))
    .addHelpText('after', SANDBOX_CONTROLS)
    .action(withoutApp(async () => (await import('./sandbox.js')).sandbox));
}

const choice = (flags: string, description: string, values: readonly string[]) =>
  new Option(flags, description).choices(values);

const concurrency = () =>
  number(
    '--concurrency <batches>',
    'maximum number of batches in flight (default: as many as the quota needs)',
    {
      max: 200,
    },
  );

const PORT = { min: 0, max: 65_535 };

const nameOf = (flags: string) => flags.split(' ', 1)[0];

const number = (flags: string, description: string, range?: Parameters<typeof wholeNumber>[1]) =>
  new Option(flags, description).argParser(wholeNumber(`${nameOf(flags)} takes`, range));

/** Option that takes a number from 0 to `most`. The default is 0. `takes` describes the number in an error. */
function fraction(
  flags: string,
  description: string,
  { takes, most = Infinity }: { takes: string; most?: number },
) {
  const read = (text: string) => {
    const value = Number(text);
    if (/^[\d.]+$/.test(text) && value >= 0 && value <= most) return value;
    throw new UsageError(`${nameOf(flags)} takes ${takes}, not '${text}'`);
  };
  return new Option(flags, description).argParser(read).default(0);
}

const share = (flags: string, description: string) =>
  fraction(flags, description, { takes: 'a share from 0 to 1', most: 1 });
