import type { App } from '../app/app.js';
import { nightlyOf, schedulesOf, verifyScheduleOf } from '../config/config-file.js';
import { nextDue } from '../time/cron-schedule.js';
import { AFTER_SYNC, NIGHTLY } from '../time/schedule.js';
import { isUnencryptedRemote, parsePostgresAddress } from '../connections/addresses.js';
import { currentText } from '../config/setting-text.js';
import { UsageError } from '../errors/errors.js';
import { formatMinute, lines, plural } from '../text/format.js';
import { describeFormer, findFormerProcesses } from '../documents/concerns/processes.js';
import { plain } from '../render/text.js';
import { print, printLines } from '../render/print.js';
import { findExposedSecrets } from '../config/environment.js';
import { readClock } from '../state/database.js';
import { listProcesses } from '../state/processes.js';
import { checkAll, type Finding, type WriteQuestion } from '../sync/operator/check.js';
import { confirm } from './ask.js';
import { describePlace, EXIT, exitCodeOfErrorCode } from './command.js';
import { checkWire, type CheckWireOptions } from './check-wire.js';

const SIGNS = { ok: '✓', fault: '✗', contradicted: '✗', warning: '!', untested: '·' } as const;

interface CheckOptions extends CheckWireOptions {
  wire?: boolean;
  writeProbe?: string;
  externalId?: string;
  yes?: boolean;
  rows?: boolean;
}

export async function check(app: App, options: CheckOptions): Promise<number> {
  const { writeProbe: number, externalId, wire, record, against } = options;
  if (externalId !== undefined && number === undefined)
    throw new UsageError('--external-id is used only with --write-probe <number>: add --write-probe');
  if (wire || record !== undefined || against !== undefined) return checkWire(app, options);
  const findings: Finding[] = [];
  const add = (finding: Finding) => {
    findings.push(finding);
    if (!options.json) printLines(describeFinding(finding));
  };
  add({ what: 'settings', result: 'ok', text: describeSettings(app) });
  for (const text of app.misspelled) add({ what: 'settings', result: 'fault', text, code: 'usage' });
  for (const text of findExposedSecrets(options.envFile)) add({ what: 'secrets', result: 'warning', text });
  for (const [setting, url] of Object.entries({
    MIRROR_DATABASE_URL: app.settings.mirrorUrl,
    STATE_DATABASE_URL: app.settings.stateUrl === app.settings.mirrorUrl ? undefined : app.settings.stateUrl,
  })) {
    if (url === undefined || !isUnencryptedRemote(parsePostgresAddress(currentText(url)))) continue;
    const text = `${setting} names another machine, but the connection is not encrypted`;
    const remedy = `Add ?sslmode=verify-full to the address, and &sslrootcert=/path/ca.pem for a private certificate authority.`;
    add({ what: 'encryption', result: 'warning', text, remedy });
  }
  const configuration = await app.configuration();
  await app.alertChannels();
  const { settings } = app;
  const timeZone = () => app.timeZone().catch(() => 'UTC');
  const deps = {
    timeZone,
    configuration,
    confirmedState: app.confirmedState,
    mirror: await app.mirror(),
    destination: async () => (await app.destination()).patient,
    writeProbe:
      number === undefined
        ? undefined
        : { number, externalId, actor: await app.actor(), confirm: confirmWrite(options) },
    mapsRows: options.rows,
    isQuotaInState: app.settings.redisUrl === undefined,
  };
  for await (const finding of checkAll(deps)) add(finding);
  const { processes, now } = await app.confirmedState().then(
    async ({ db }) => ({ processes: await listProcesses(db), now: await readClock(db) }),
    () => ({ processes: [], now: new Date() }),
  ); // reported above
  for (const process of findFormerProcesses(processes, configuration.fingerprints)) {
    const text = plain(describeFormer(process, now), await timeZone());
    add({ what: 'processes', result: 'warning', text });
  }
  for (const schedule of schedulesOf(configuration)) {
    const next = formatMinute(nextDue(schedule, now), settings.timeZone ?? schedule.timezone);
    const what = schedule.name === NIGHTLY ? 'nightly sync' : `sync of ${schedule.streams.join(', ')}`;
    const text = `the next ${what} is due ${next} (pattern in ${schedule.timezone}), if a worker is running`;
    add({ what: 'schedule', result: 'ok', text });
  }

  const verify = verifyScheduleOf(configuration);
  if (verify) {
    const at = verify.pattern === AFTER_SYNC ? nightlyOf(configuration) : verify;
    const next = at ? formatMinute(nextDue(at, now), settings.timeZone ?? at.timezone) : '';
    const when = verify.pattern === AFTER_SYNC ? 'after the nightly sync due' : 'due';
    const text = `the next verify is ${when} ${next}, if a worker is running`;
    add({ what: 'verify', result: 'ok', text });
  }

  const faults = findings.filter(({ result }) => result === 'fault');
  print(options, { ok: faults.length === 0, findings }, ['', describeResults(findings)]);
  if (faults.length === 0) return EXIT.done;
  return faults.some(({ code }) => exitCodeOfErrorCode(code ?? null) === EXIT.usage)
    ? EXIT.usage
    : EXIT.failed;
}

function confirmWrite(options: CheckOptions) {
  return ({ object: { id, extId, typeId }, leftOut }: WriteQuestion): Promise<boolean> => {
    const named = `object ${id} (${extId ?? 'without an external id'}, type ${typeId})`;
    const times = leftOut === undefined ? 'as it is' : `as it is, once without ${leftOut}, and as it was`;
    return confirm(options, {
      lines: [`This writes ${named} ${times}. Nobody should edit this object meanwhile.`],
      question: 'Write it?',
      unasked: [
        `${named} would be written ${times}`,
        'If nobody is editing the object, run the command again with --yes.',
      ],
    });
  };
}

function describeResults(findings: readonly Finding[]): string {
  const count = (...results: Finding['result'][]) =>
    findings.filter(({ result }) => results.includes(result)).length;
  const [faults, warnings] = [count('fault'), count('warning')];
  const wrong = count('fault', 'contradicted');
  const counts = [
    `${count('ok')} hold`,
    `${wrong} ${wrong === 1 ? 'does' : 'do'} not hold`,
    `${count('untested')} not tested yet`,
    warnings > 0 && plural(warnings, 'warning'),
  ];
  const isUnwritten = findings.some(({ text }) => text.includes('by the first sync, or --write-probe'));
  const next =
    faults > 0
      ? `Correct ${plural(faults, 'fault')}, then check again.`
      : isUnwritten
        ? 'Next: slotsync check --write-probe <number>, or what would be sent: slotsync plan'
        : 'Next, what would be sent: slotsync plan';
  return `${lines(...counts).join(', ')}. ${next}`;
}

function describeSettings(app: App): string {
  const { redisUrl, requestsPerSecond } = app.settings;
  const queue = redisUrl === undefined ? 'queue and quota in the state database' : 'queue and quota on Redis';
  return `${describePlace(app)}, ${requestsPerSecond} requests a second, ${queue}`;
}

function describeFinding({ result, what, text, remedy }: Finding): string[] {
  return lines(`${SIGNS[result]} ${what}: ${text}`, remedy !== undefined && `    → ${remedy}`);
}
