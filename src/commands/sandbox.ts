import { existsSync } from 'node:fs';
import { InvalidArgumentError, Option, type Command } from 'commander';
import { loadConfiguration } from '../config-file.js';
import { loadSettings } from '../settings.js';
import { startSandbox, type SandboxOptions } from '../sandbox/sandbox.js';
import type { SandboxSchema } from '../sandbox/schema.js';
import { EXIT, wholeNumber } from './command.js';
import { printJson, printLine } from '../report/format.js';

interface Options {
  json?: boolean;
  config?: string;
  port: number;
  host: string;
  organization: string;
  apiKey: string;
  region: string;
  rate: number;
  window: 'sliding' | 'fixed' | 'bucket';
  retryAfter: boolean;
  tokenSeconds: number;
  tokenExp: boolean;
  expiredStatus: string;
  putStatus?: string;
  maxObjects: number;
  modified: boolean;
  latency: number;
  jitter: number;
  status500: number;
  reset: number;
  loseAnswer: number;
  brokenJson: number;
  hang: number;
  seed: number;
}

const CONTROLS = `
What people do at the service is done below /sandbox/, from this machine, without a key; times are Unix seconds:
  GET    /sandbox/reservations                {reservations, cancellations}
  POST   /sandbox/reservations                {extId?, begin, end, status?, objects?: [{typeId, objectId}], fields?}
  POST   /sandbox/reservations/{id}/move      {begin, end}
  POST   /sandbox/reservations/{id}/cancel    {extId?} of the cancellation, or no body
  POST   /sandbox/reservations/{id}/restore   no body
  POST   /sandbox/reservations/{id}/status    {status: ["C_PLANNED"]}
  DELETE /sandbox/reservations/{id}           without a trace
{id} is the number or the external id. To stop the service at a known place, and do something meanwhile:
  POST   /sandbox/gate    {path?: "objects", method?: "PUT", hold?: "request" | "answer", after?: 3}
  GET    /sandbox/gate    {closed, held}: how many requests are held
  DELETE /sandbox/gate    lets them go
A held request is carried out when the gate opens; with hold "answer" it is carried out at once, and its answer is
held. "after" lets so many pass first. More of them: docs/api-contract.md.`;

export function addSandbox(program: Command): void {
  program
    .command('sandbox')
    .description(
      'play the scheduling service on this machine, to rehearse against; its data is gone when it ends',
    )
    .option(
      '-c, --config <file>',
      'configuration whose types and fields it shall know (default: sync.config.ts, if there)',
    )
    .option('--port <port>', 'port to listen at; 0: a free one', wholeNumber, 8377)
    .option('--host <host>', 'address to listen at', '127.0.0.1')
    .option('--organization <id>', 'the organization it knows', 'demo')
    .option('--api-key <key>', 'the key it accepts', 'sandbox-key')
    .option('--region <region>', 'the region it accepts', 'EU_EES')
    .option('--rate <requests>', 'requests a second of the organization; 0: no quota', wholeNumber, 20)
    .addOption(
      new Option('--window <kind>', 'how it counts a second')
        .choices(['sliding', 'fixed', 'bucket'])
        .default('sliding'),
    )
    .option('--no-retry-after', 'leave Retry-After out of a 429')
    .option('--token-seconds <seconds>', 'life of a token', wholeNumber, 300)
    .option('--no-token-exp', 'leave exp out of the token')
    .addOption(
      new Option('--expired-status <status>', 'answer to an expired token')
        .choices(['401', '403'])
        .default('401'),
    )
    .addOption(
      new Option(
        '--put-status <status>',
        'answer to every PUT (default: 207 when an object was refused)',
      ).choices(['200', '207']),
    )
    .option('--max-objects <objects>', 'most objects of a PUT', wholeNumber, 1000)
    .option('--no-modified', 'ignore the filter `modified` of finds')
    .option('--latency <ms>', 'time an answer takes', wholeNumber, 0)
    .option('--jitter <ms>', 'spread of that time', wholeNumber, 0)
    .option('--status500 <share>', 'share of requests answered 500', share, 0)
    .option('--reset <share>', 'share of connections reset before anything is done', share, 0)
    .option('--lose-answer <share>', 'share of answers lost after everything is done', share, 0)
    .option('--broken-json <share>', 'share of answers that are not JSON', share, 0)
    .option('--hang <share>', 'share of requests never answered', share, 0)
    .option('--seed <number>', 'repeats the same faults', wholeNumber, 1)
    .option('--json', 'print one JSON document instead of text')
    .addHelpText('after', CONTROLS)
    .action(async (options: Options) => {
      const schema = await readSchema(options.config);
      const sandbox = await startSandbox({ ...toSandboxOptions(options), schema });
      const settings = {
        API_BASE_URL: sandbox.url,
        API_ORGANIZATION_ID: options.organization,
        API_KEY: options.apiKey,
      };
      const known = { types: schema.types.length, fields: schema.fields.length };
      if (options.json) {
        printJson({ url: sandbox.url, settings, ...known });
      } else {
        printLine(`The sandbox answers at ${sandbox.url}. Settings for it:\n`);
        for (const [name, value] of Object.entries(settings)) printLine(`  ${name}=${value}`);
        printLine(`\nIt knows ${known.types} types and ${known.fields} fields.`);
        printLine(`What it has seen: ${sandbox.url}/sandbox/summary`);
      }
      await new Promise<void>((resolve) => {
        process.once('SIGINT', resolve);
        process.once('SIGTERM', resolve);
      });
      await sandbox.close();
      process.exitCode = EXIT.done;
    });
}

function toSandboxOptions(options: Options): SandboxOptions {
  const { status500, reset, loseAnswer, brokenJson, hang } = options;
  return {
    port: options.port,
    host: options.host,
    organizationId: options.organization,
    apiKey: options.apiKey,
    region: options.region,
    rate: options.rate,
    window: options.window,
    retryAfter: options.retryAfter,
    tokenSeconds: options.tokenSeconds,
    tokenExp: options.tokenExp,
    maxObjects: options.maxObjects,
    honoursModified: options.modified,
    latencyMs: options.latency,
    jitterMs: options.jitter,
    seed: options.seed,
    expiredStatus: options.expiredStatus === '403' ? 403 : 401,
    ...(options.putStatus === undefined ? {} : { putStatus: options.putStatus === '200' ? 200 : 207 }),
    faults: { status500, reset, loseAnswer, brokenJson, hang },
  };
}

/** The types and fields the configuration names; none when there is no configuration. */
async function readSchema(file: string | undefined): Promise<SandboxSchema> {
  const configured = file ?? loadSettings([]).configPath;
  if (
    configured === undefined &&
    !['ts', 'js', 'mjs', 'json'].some((ending) => existsSync(`sync.config.${ending}`))
  ) {
    return { types: [], fields: [] };
  }
  const { streams } = await loadConfiguration(configured);
  const byName = new Map(streams.map((stream) => [stream.name, stream]));
  const types = [...new Set(streams.map(({ type }) => type))].map((extId) => ({ extId }));
  const fields = new Map<string, SandboxSchema['fields'][number]>();
  for (const stream of streams) {
    for (const extId of stream.owned) fields.set(extId, fields.get(extId) ?? { extId });
    for (const { fieldId, stream: parent } of stream.references) {
      const reference = byName.get(parent)?.type;
      fields.set(fieldId, { extId: fieldId, ...(reference === undefined ? {} : { reference }) });
    }
  }
  return { types, fields: [...fields.values()] };
}

function share(text: string): number {
  const value = Number(text);
  if (!(value >= 0 && value <= 1)) throw new InvalidArgumentError('a share from 0 to 1 is needed.');
  return value;
}
