import type { Command } from 'commander';
import pLimit from 'p-limit';
import type { App } from '../app.js';
import { scheduleOf } from '../config-file.js';
import { codeOf, messageWithDetail, SlotsyncError, UsageError } from '../errors.js';
import { nextDue } from '../cron-schedule.js';
import type { Mirror } from '../mirror/mirror.js';
import type { ReservationConfig } from '../streams/bookings.js';
import { probeAssumptions } from '../sync/probe-assumptions.js';
import { describeUnknown, findUnknownNames } from '../sync/plan/preflight.js';
import { common, EXIT, exitCodeOfFailure, withApp, type CommonOptions } from './command.js';
import { formatInZone, printJson, printLine } from '../report/format.js';

interface Finding {
  what: string;
  /** `note`: worth knowing, not wrong. */
  result: 'ok' | 'fault' | 'note';
  text: string;
  remedy?: string;
  code?: string;
}

/** Sources read at once. */
const AT_ONCE = 2;

export function addCheck(program: Command): void {
  common(program.command('check'))
    .description(
      'test settings, mirror, every source, credentials, types, fields and what is assumed of the service; writes nothing there',
    )
    .action((options: CommonOptions) =>
      withApp({ needs: ['mirror', 'state', 'api'], configPath: options.config }, (app) =>
        check(app, options),
      ),
    );
}

async function check(app: App, options: CommonOptions): Promise<number> {
  const findings: Finding[] = [{ what: 'settings', result: 'ok', text: describeSettings(app) }];
  const add = (...found: Finding[]) => {
    findings.push(...found);
    if (!options.json) for (const finding of found) printFinding(finding);
  };
  if (!options.json) findings.forEach(printFinding);

  const configuration = await app.configuration();
  const { streams } = configuration;
  add({
    what: 'configuration',
    result: 'ok',
    text: `${streams.length} streams: ${streams.map(({ name }) => name).join(', ')}`,
  });

  const stateFine = await finding('state', add, async () => {
    await app.confirmedState();
    return 'the tables are there and belong to this destination';
  });
  const mirror = await app.mirror();
  const mirrorFine = await finding('mirror', add, async () => {
    const { database, version } = await mirror.ping();
    return `database ${database}, PostgreSQL ${version}`;
  });
  if (mirrorFine) {
    const limit = pLimit(AT_ONCE);
    const checked = await Promise.all(
      streams.map((stream) => limit(async () => ({ stream, faults: await mirror.checkStream(stream) }))),
    );
    for (const { stream, faults } of checked) {
      const what = `source of ${stream.name}`;
      if (faults.length === 0) add({ what, result: 'ok', text: 'every column is there' });
      add(...faults.map((text) => ({ what, result: 'fault', text, code: 'mirror_source' }) as const));
    }
    if (configuration.reservations) add(...(await checkBookings(mirror, configuration.reservations)));
  }

  // Without the state there is no place to count the quota in, and nothing may be sent.
  if (stateFine || app.settings.redisUrl !== undefined) {
    const destination = await app.destination();
    let token = '';
    const authenticated = await finding('credentials', add, async () => {
      token = await destination.authenticate();
      return 'the service accepts the key';
    });
    if (authenticated) {
      await finding('types and fields', add, async () => {
        const unknown = await findUnknownNames(destination, streams, { lane: 'incremental' });
        if (unknown.length > 0) throw new UsageError('', { faults: unknown.map(describeUnknown) });
        return 'the service knows every one the configuration names';
      });
      for (const { name, held, found, needed } of await probeAssumptions(destination, token)) {
        const result = held === 'yes' ? 'ok' : held === 'no' && needed ? 'fault' : 'note';
        add({ what: `assumed: ${name}`, result, text: found });
      }
    }
  } else {
    add({
      what: 'credentials',
      result: 'note',
      text: 'not tried: the quota is counted in the state, which is not usable',
    });
  }
  const schedule = scheduleOf(configuration);
  if (schedule) {
    const next = formatInZone(nextDue(schedule, new Date()), schedule.timezone);
    add({
      what: 'schedule',
      result: 'ok',
      text: `the next night begins ${next} (${schedule.timezone}), if a worker runs`,
    });
  }

  const faults = findings.filter(({ result }) => result === 'fault');
  if (options.json) printJson({ ok: faults.length === 0, findings });
  else
    printLine(
      faults.length === 0
        ? '\nAll is well. See what would be sent: slotsync plan'
        : `\n${faults.length} to mend.`,
    );
  if (faults.length === 0) return EXIT.done;
  return faults.some(({ code }) => code === 'usage' || exitCodeOfFailure(code ?? null) === EXIT.usage)
    ? EXIT.usage
    : EXIT.failed;
}

async function checkBookings(mirror: Mirror, { bookings }: ReservationConfig): Promise<Finding[]> {
  const what = 'source of reservations';
  if (!bookings)
    return [{ what, result: 'note', text: 'none: reservations there are kept, and compared with nothing' }];
  const faults = await mirror.bookings.check(bookings);
  if (faults.length > 0)
    return faults.map((text) => ({ what, result: 'fault', text, code: 'mirror_source' }) as const);
  return [
    { what, result: 'ok', text: `every column is there; times without a zone are ${bookings.timezone}` },
  ];
}

/** Runs one check; what it throws is its fault. Returns whether it held. */
async function finding(
  what: string,
  add: (...found: Finding[]) => void,
  run: () => Promise<string>,
): Promise<boolean> {
  try {
    add({ what, result: 'ok', text: await run() });
    return true;
  } catch (error) {
    const texts =
      error instanceof UsageError && error.faults.length > 0 ? error.faults : [messageWithDetail(error)];
    const remedy = error instanceof SlotsyncError && error.remedy !== '' ? { remedy: error.remedy } : {};
    add(...texts.map((text) => ({ what, result: 'fault', text, code: codeOf(error), ...remedy }) as const));
    return false;
  }
}

function describeSettings({ settings }: App): string {
  const queue =
    settings.redisUrl === undefined ? 'queue and quota in the state database' : 'queue and quota on Redis';
  return `organization ${settings.api?.organizationId} at ${settings.api?.baseUrl}, ${settings.requestsPerSecond} requests a second, ${queue}`;
}

const SIGNS = { ok: '✓', fault: '✗', note: '·' } as const;

function printFinding({ what, result, text, remedy }: Finding): void {
  printLine(`${SIGNS[result]} ${what}: ${text}`);
  if (remedy !== undefined) printLine(`    → ${remedy}`);
}
