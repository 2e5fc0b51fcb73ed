import type { App } from '../app/app.js';
import { messageOf, UsageError } from '../errors/errors.js';
import { readTextFile, replaceFile } from '../files/text-file.js';
import { print, printLines } from '../render/print.js';
import {
  compareExchange,
  contractSchema,
  probeWire,
  READERS,
  withoutValues,
  type Probed,
  type WireExchange,
} from '../sync/operator/probe-wire.js';
import { RESERVATION_STATUSES } from '../streams/config-schema.js';
import { lines, plural } from '../text/format.js';
import { describeShape, shapeOf } from '../text/json-shape.js';
import { type CommonOptions, EXIT } from './command.js';

export interface CheckWireOptions extends CommonOptions {
  values?: boolean;
  record?: string;
  against?: string;
}

/** Sends a request to each endpoint and prints the answers. Records their shape, or compares it with a record. */
export async function checkWire(app: App, options: CheckWireOptions): Promise<number> {
  const { record, against } = options;
  const recorded = against === undefined ? undefined : readContract(against);
  const { streams, reservations } = await app.configuration();
  const destination = await app.destination();
  const probed: Probed[] = [];
  for await (const each of probeWire(destination)) {
    probed.push(each);
    if (!options.json) printLines(describeProbed(each, options.values ?? false));
  }
  const exchanges = probed.flatMap(({ exchange }) => exchange ?? []);
  if (record !== undefined) {
    const names = new Set([
      ...streams.flatMap(({ type, owned, references }) => [
        type,
        ...owned,
        ...references.map(({ fieldId }) => fieldId),
      ]),
      ...(reservations?.rules.fields ?? []),
      ...RESERVATION_STATUSES,
    ]);
    const contract = {
      version: 1,
      exchanges: withoutValues(exchanges, { names, organizationId: destination.binding.organizationId }),
    };
    replaceFile(record, `${JSON.stringify(contract, null, 2)}\n`);
  }
  const changed = recorded?.flatMap((was) => {
    const is = exchanges.find(({ endpoint }) => endpoint === was.endpoint);
    return is
      ? compareExchange(was, is).map((text) => `${was.endpoint}: ${text}`)
      : [`${was.endpoint}: no answer`];
  });
  const faults = probed.filter(({ fault }) => fault);
  const breaking = changed?.filter((text) => !text.endsWith('is new')) ?? [];
  const document = probed.map(({ exchange, ...more }) => ({
    ...more,
    ...(exchange && {
      method: exchange.method,
      path: exchange.path,
      status: exchange.status,
      sent: exchange.sent,
      answered: describeShape(shapeOf(exchange.answered)),
      ...(options.values && hasValues(exchange) && { values: exchange.answered }),
    }),
  }));
  print(
    options,
    { ok: faults.length + breaking.length === 0, endpoints: document, ...(changed && { changed }) },
    [
      '',
      ...lines(
        ...(changed ?? []).map((text) => `${text.endsWith('is new') ? '!' : '✗'} ${text}`),
        `${plural(probed.length - faults.length, 'answer')} understood, ${faults.length} not.`,
        changed?.length === 0 && `Every answer has the shape recorded in ${against}.`,
        record !== undefined &&
          `Recorded without values in ${record}. To play it: slotsync sandbox --contract ${record}`,
      ),
    ],
  );
  return faults.length + breaking.length === 0 ? EXIT.done : EXIT.failed;
}

/** The values in the answer to `authenticate` are secret, so they are never shown. */
const hasValues = ({ endpoint }: WireExchange) => endpoint !== 'authenticate';

function describeProbed({ endpoint, exchange, understood, fault }: Probed, withValues: boolean): string[] {
  const shape = (value: unknown) => (value === undefined ? 'nothing' : describeShape(shapeOf(value)));
  const readers = READERS[endpoint] ?? endpoint;
  return lines(
    `${fault ? '✗' : '✓'} ${endpoint}${exchange ? `: ${exchange.method} ${exchange.path}, ${exchange.status}` : ''}`,
    exchange && `    sent: ${withValues ? JSON.stringify(exchange.sent ?? null) : shape(exchange.sent)}`,
    exchange && `    answered: ${shape(exchange.answered)}`,
    exchange && withValues && hasValues(exchange) && `    values: ${JSON.stringify(exchange.answered)}`,
    understood !== undefined && `    understood: ${understood}`,
    fault && `    not understood: ${fault.text}`,
    fault &&
      `    → ${fault.remedy || 'docs/service-contract.md'} To adapt slotsync to the service, configure a dialect with ${readers}.`,
  );
}

/** Reads a recorded contract. Throws UsageError if the file cannot be read or has another format. */
export function readContract(file: string): WireExchange[] {
  const remedy = 'To record a contract: slotsync check --record <file>';
  let given: unknown;
  try {
    given = JSON.parse(readTextFile(file));
  } catch (error) {
    throw new UsageError(`${file} cannot be read: ${messageOf(error)}`, { remedy });
  }
  const { data, error } = contractSchema.safeParse(given);
  if (data) return data.exchanges;
  const [issue] = error.issues;
  throw new UsageError(
    `${file} is not a recorded contract: ${issue?.path.join('.') ?? ''}: ${issue?.message ?? ''}`,
    {
      remedy,
    },
  );
}
