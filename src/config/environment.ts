// The environment, with the file of settings, and the files of secrets that it names.
import { existsSync, statSync } from 'node:fs';
import path from 'node:path';
import { parseEnv } from 'node:util';
import { UsageError } from '../errors/errors.js';
import { findOtherWriters, isReadableByOthers, readTextFile } from '../files/text-file.js';
import { containsSecret, findMisspelled, listSecretFiles } from './settings.js';

/**
 * The environment, with what the file adds to it: variables that are set already win. Without a name, `.env` of the
 * working directory is read if there is one. Throws UsageError when the file cannot be read or understood, or was found and
 * could have been written by others, or is a pipe, whose writer would be waited for.
 */
export function readEnvironment(file?: string): NodeJS.ProcessEnv {
  if (file === undefined && !existsSync('.env')) return process.env;
  if (file === undefined) requireOwnFile('.env', '--settings .env');
  if (file !== undefined && !existsSync(file))
    throw new UsageError(`there is no file of settings ${path.resolve(file)}`, {
      remedy: 'Write one (.env.example shows the form), or name another with --settings.',
    });
  const text = readTextFile(file ?? '.env', { pipes: file !== undefined });
  const line = findUnreadableLine(text);
  if (line !== undefined)
    throw new UsageError(`${file ?? '.env'}: line ${line} is not NAME=value`, {
      remedy: 'Correct the line, or put # before it; .env.example shows the form.',
    });
  const settings = parseEnv(text);
  if (settings['NODE_EXTRA_CA_CERTS'] && process.env['NODE_EXTRA_CA_CERTS'] === undefined)
    throw new UsageError(`${file ?? '.env'}: NODE_EXTRA_CA_CERTS has no effect in a file of settings`, {
      remedy: 'Node reads it when it starts: set it in the environment, and remove it here.',
    });
  for (const [name, value] of Object.entries(settings)) process.env[name] ??= value;
  return process.env;
}

/** The file of settings, as a place where one is missing. */
export function describeSettingsFile(file = '.env'): string {
  return `${path.resolve(file)}${existsSync(file) ? '' : ' (there is no such file)'}`;
}

/** Throws UsageError for a file that was found, and not named by the operator, and that others could have written. */
export function requireOwnFile(file: string, named: string): void {
  const others = findOtherWriters(file);
  if (others)
    throw new UsageError(`${file} is not loaded: ${others.reason}`, {
      remedy: `If you trust it: ${others.remedy}, or name it: ${named}`,
    });
}

/** The files that an operator named although others could have written them, as sentences. */
export function findForeignFiles(files: readonly (string | undefined)[]): string[] {
  return files.flatMap((file) => {
    const others = file === undefined ? undefined : findOtherWriters(file);
    return others
      ? [`${file} is loaded because it is named, although ${others.reason}: ${others.remedy}`]
      : [];
  });
}

/** The number of the first line that Node would skip silently. */
function findUnreadableLine(text: string): number | undefined {
  // A value in quotes may continue over lines.
  const lines = text.replaceAll(/^[ \t]*#.*|=[ \t]*("[^"]*"|'[^']*'|`[^`]*`)/gm, (part) =>
    part.startsWith('=') ? `=${part.slice(1).replaceAll(/[^\n]/g, ' ')}` : part,
  );
  const index = lines
    .split('\n')
    .findIndex((line) => !/^\s*(#.*|(export\s+)?[A-Za-z_][\w.-]*\s*=.*)?\s*$/.test(line));
  return index < 0 ? undefined : index + 1;
}

/** Files with secrets that every user of this machine may read, as sentences: files of `…_FILE` settings, and `.env`. */
export function findExposedSecrets(envFile = '.env', env: NodeJS.ProcessEnv = process.env): string[] {
  const files = listSecretFiles(env);
  if (containsSecret(parseSettingsFile(envFile))) files.push(envFile);
  return files
    .filter(isReadableByOthers)
    .map((file) => `${file} may be read by every user of this machine; chmod 600 it`);
}

/** The settings of the file. A pipe has none: it has been read, and is empty. */
function parseSettingsFile(file: string): NodeJS.Dict<string> {
  const isFile = statSync(file, { throwIfNoEntry: false })?.isFile() ?? false;
  return isFile ? parseEnv(readTextFile(file)) : {};
}

/** Prefixes of our settings. The environment also holds variables of other programs, which may resemble ours by chance. */
const OUR_PREFIX = /^(SLOTSYNC|API|MIRROR|STATE|REDIS|ALERT|HTTP)_/;

/** Misspelled settings of the file and of the environment, as sentences. Call it after `readEnvironment`. */
export function findMisspelledSettings(envFile = '.env', env: NodeJS.ProcessEnv = process.env): string[] {
  const ofFile = Object.keys(parseSettingsFile(envFile));
  const ofEnvironment = Object.keys(env).filter((name) => OUR_PREFIX.test(name));
  return findMisspelled(new Set([...ofFile, ...ofEnvironment]), env);
}
