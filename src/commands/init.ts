import { existsSync } from 'node:fs';
import path from 'node:path';
import type { App } from '../app/app.js';
import { UsageError } from '../errors/errors.js';
import type { CatalogueTable } from '../mirror/read-catalogue.js';
import { plural } from '../text/format.js';
import { listNames } from '../text/nearest-name.js';
import { print, printLine } from '../render/print.js';
import {
  describeProposal,
  renderConfiguration,
  toSource,
  TYPES_MARKER,
} from '../sync/init/configuration-file.js';
import { doubtOf, type NamedType, type TableOfType } from '../sync/init/match-names.js';
import {
  chooseTables,
  isDraft,
  nearestTable,
  proposeConfiguration,
} from '../sync/init/propose-configuration.js';
import { surveyService } from '../sync/run/survey-service.js';
import { readTextFile, requireWritableFolder, writeNewFile } from '../files/text-file.js';
import { visibleInLine } from '../text/visible-text.js';
import { canAsk } from './ask.js';
import { describePlace, type CommonOptions } from './command.js';

interface InitOptions extends CommonOptions {
  tables?: string;
  yes?: boolean;
  out: string;
}

/** File that `slotsync discover --types` writes beside the configuration, with the service's names. */
const TYPES_FILE = 'service.d.ts';

export async function init(app: App, options: InitOptions): Promise<void> {
  const { out } = options;
  if (!out.endsWith('.ts'))
    throw new UsageError(`--out ${out}: init writes TypeScript: name a file that ends with .ts`);
  if (existsSync(out))
    throw new UsageError(`${out} already exists and is not overwritten`, {
      remedy: 'Move it away, or name another file with --out.',
    });
  requireWritableFolder(out);
  const isAsked = options.tables === undefined && !options.yes;
  if (isAsked && !canAsk())
    throw new UsageError('init can ask for the tables only on a terminal', {
      remedy: 'Name the tables with --tables, or include every table that resembles a type with --yes.',
    });

  const { catalogue, ping } = await app.mirror();
  const { database } = await ping();
  const tables = await catalogue.readTables();
  if (tables.length === 0)
    throw new UsageError(`database ${database} has no table that this role may read`, {
      remedy: 'Check the database in MIRROR_DATABASE_URL, and GRANT SELECT on its tables.',
    });
  const service = describePlace(app);
  const survey = await surveyService((await app.destination()).patient, { isWhole: false });
  const types = survey.types.filter((type): type is NamedType => type.extId !== undefined);
  if (types.length === 0)
    throw new UsageError(`${service} knows no type with an external id`, {
      remedy: 'Types are defined at the service, with their external ids. See: slotsync discover',
    });
  const named = findTables(options.tables ?? '', tables, types);
  const matched = await chooseTables(catalogue, tables, types, named);
  const chosen = isAsked
    ? await askForTables(tables, matched)
    : options.tables === undefined
      ? tables.filter((table) => matched.some((match) => match.table === table))
      : named.keys();
  const proposal = await proposeConfiguration(catalogue, survey, matched, new Set(chosen), tables);
  if (proposal.streams.length === 0) {
    const faults = proposal.leftOut.map(({ table, why }) => `${toSource(table)}: ${why}`);
    throw new UsageError('no table resembles a type of the service, so there is nothing to write', {
      faults,
      remedy: `Types: ${types.map(({ extId }) => extId).join(', ')}. Write the file by hand (docs/configuration.md).`,
    });
  }
  const names = path.join(path.dirname(out), TYPES_FILE);
  const hasTypes = existsSync(names) && readTextFile(names).startsWith(TYPES_MARKER);
  const text = renderConfiguration(proposal, {
    service,
    database,
    types: hasTypes ? './service.js' : undefined,
  });
  writeNewFile(out, text);
  const unsure = text.match(/\/\/ unsure:/g)?.length ?? 0;
  const streams = proposal.streams.map((stream) => ({
    name: stream.name,
    type: stream.type.extId,
    isDraft: isDraft(stream),
    fields: stream.fields.length,
    references: stream.references.length,
  }));
  const [summary, ...details] = describeProposal(proposal);
  print(options, { file: out, streams, unsure }, [
    `${out}: ${summary}`,
    ...details,
    '',
    unsure === 0
      ? 'Next: slotsync check'
      : `${unsure} ${unsure === 1 ? 'line begins' : 'lines begin'} with "// unsure". Read ${unsure === 1 ? 'it' : 'them'}, then: slotsync check`,
  ]);
}

/** Lets the user choose tables on the terminal. Tables that surely match a type are preselected. */
async function askForTables(
  tables: readonly CatalogueTable[],
  matched: readonly TableOfType[],
): Promise<CatalogueTable[]> {
  const { default: checkbox } = await import('@inquirer/checkbox');
  const byPlace = matched.toSorted((a, b) => tables.indexOf(a.table) - tables.indexOf(b.table));
  const choices = byPlace.map((match) => {
    const [doubt, source] = [doubtOf(match), toSource(match.table)];
    const name = visibleInLine(`${source} → ${match.type.extId}${doubt ? ` (${doubt})` : ''}`);
    return { name, value: match.table, checked: doubt === undefined };
  });
  if (choices.length === 0) return [];
  const others = tables.filter((table) => !choices.some(({ value }) => value === table)).map(toSource);
  if (others.length > 0)
    printLine(
      `${plural(others.length, 'table')} not listed, because no type has a similar name: ${listNames(others)}. To include such a table, name all tables: slotsync init --tables <table>,<table>=<type>,…`,
    );
  try {
    return await checkbox({ message: 'Tables to include:', choices, required: true });
  } catch (error) {
    throw new UsageError('stopped: nothing was written', { cause: error });
  }
}

/** Parses `--tables`: names with or without schema, or `table=type`. Throws UsageError for an unknown name. */
function findTables(
  list: string,
  tables: readonly CatalogueTable[],
  types: readonly NamedType[],
): Map<CatalogueTable, NamedType | undefined> {
  const chosen = new Map<CatalogueTable, NamedType | undefined>();
  for (const part of list.split(',')) {
    const whole = part.trim();
    if (whole === '') continue;
    const at = tables.some(({ name }) => name === whole) ? -1 : whole.lastIndexOf('=');
    const typeName = at === -1 ? undefined : whole.slice(at + 1).trim();
    const table = findTable(at === -1 ? whole : whole.slice(0, at).trim(), tables);
    const type = types.find(({ extId }) => extId === typeName);
    if (typeName !== undefined && type === undefined)
      throw new UsageError(`--tables ${whole}: the service has no type ${typeName}`, {
        remedy: `There are: ${listNames(types.map(({ extId }) => extId))}.`,
      });
    chosen.set(table, type);
  }
  return chosen;
}

function findTable(wanted: string, tables: readonly CatalogueTable[]): CatalogueTable {
  const found = tables.filter((table) => [table.name, toSource(table)].includes(wanted));
  const [table, another] = found;
  if (table !== undefined && another === undefined) return table;
  if (table !== undefined)
    throw new UsageError(`--tables ${wanted}: several tables have this name`, {
      remedy: `Name the schema too: ${found.map(toSource).join(', ')}.`,
    });
  const near = nearestTable(wanted, tables);
  throw new UsageError(`--tables ${wanted}: no readable table has this name`, {
    remedy: near ? `Did you mean ${toSource(near)}?` : `There are: ${listNames(tables.map(toSource))}.`,
  });
}
