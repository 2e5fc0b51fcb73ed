// Reads the environment together with the file of settings, and checks the files of secrets that the settings name.
import { existsSync, statSync } from 'node:fs';
import path from 'node:path';
import { parseEnv } from 'node:util';
import { UsageError } from '../errors/errors.js';
import { findOtherWriters, isReadableByOthers, readTextFile } from '../files/text-file.js';
import { containsSecret, findMisspelled, listSecretFiles } from './settings.js';

/**
 * Returns the environment with the variables of the file added. Variables that are already set take precedence. Without
 * a name, `.env` of the working directory is read if it exists. Throws UsageError if the file cannot be read or parsed.
 * An unnamed file must not be writable by others, and must not be a pipe, whose writer would have to be awaited.
 */
export function readEnvironment(file?: string): NodeJS.ProcessEnv {
  if (file === undefined && !existsSync('.env')) return process.env;
  if (file === undefined) requireOwnFile('.env', '--settings .env');
  if (file !== undefined && !existsSync(file))
    throw new UsageError(`the settings file ${path.resolve(file)} does not exist`, {
      remedy: 'Create it (.env.example shows the form), or name another file with --settings.',
    });
  const text = readTextFile(file ?? '.env', { pipes: file !== undefined });
  const line = findUnreadableLine(text);
  if (line !== undefined)
    throw new UsageError(`${file ?? '.env'}: line ${line} is not NAME=value`, {
      remedy: 'Correct the line, or put # before it; .env.example shows the form.',
    });
  const settings = parseEnv(text);
  if (settings['NODE_EXTRA_CA_CERTS'] && process.env['NODE_EXTRA_CA_CERTS'] === undefined)
    throw new UsageError(`${file ?? '.env'}: NODE_EXTRA_CA_CERTS has no effect in a settings file`, {
      remedy: 'Node reads it when it starts: set it in the environment, and remove it here.',
    });
  for (const [name, value] of Object.entries(settings)) process.env[name] ??= value;
  return process.env;
}

/** Returns the path of the settings file, for a message about a missing setting. */
export function describeSettingsFile(file = '.env'): string {
  return `${path.resolve(file)}${existsSync(file) ? '' : ' (there is no such file)'}`;
}

/** Throws UsageError if others can write a file that slotsync has found, and that the operator has not named. */
export function requireOwnFile(file: string, named: string): void {
  const others = findOtherWriters(file);
  if (others)
    throw new UsageError(`${file} is not loaded: ${others.reason}`, {
      remedy: `If you trust it: ${others.remedy}, or name it: ${named}`,
    });
}

/** Returns a warning for each file that others can write. It is loaded nevertheless, because the operator named it. */
export function findForeignFiles(files: readonly (string | undefined)[]): string[] {
  return files.flatMap((file) => {
    const others = file === undefined ? undefined : findOtherWriters(file);
    return others
      ? [
          `${file} is loaded because you named it, although ${others.reason}; to correct that: ${others.remedy}`,
        ]
      : [];
  });
}

/** Returns the number of the first line that Node would skip silently. */
function findUnreadableLine(text: string): number | undefined {
  // Blanks quoted values, which may continue over several lines.
  const lines = text.replaceAll(/^[ \t]*#.*|=[ \t]*("[^"]*"|'[^']*'|`[^`]*`)/gm, (part) =>
    part.startsWith('=') ? `=${part.slice(1).replaceAll(/[^\n]/g, ' ')}` : part,
  );
  const index = lines
    .split('\n')
    .findIndex((line) => !/^\s*(#.*|(export\s+)?[A-Za-z_][\w.-]*\s*=.*)?\s*$/.test(line));
  return index < 0 ? undefined : index + 1;
}

/** Returns a warning for each file with secrets that every user of this machine may read, `.env` included. */
export function findExposedSecrets(envFile = '.env', env: NodeJS.ProcessEnv = process.env): string[] {
  const files = listSecretFiles(env);
  if (containsSecret(parseSettingsFile(envFile))) files.push(envFile);
  return files
    .filter(isReadableByOthers)
    .map((file) => `${file} can be read by every user of this machine; run chmod 600 on it`);
}

/** Returns the settings in the file. A pipe has no settings any more: it was read before and is empty. */
function parseSettingsFile(file: string): NodeJS.Dict<string> {
  const isFile = statSync(file, { throwIfNoEntry: false })?.isFile() ?? false;
  return isFile ? parseEnv(readTextFile(file)) : {};
}

/** Prefixes of slotsync's settings. Variables of other programs may resemble a setting by chance. */
const OUR_PREFIX = /^(SLOTSYNC|API|MIRROR|STATE|REDIS|ALERT|HTTP)_/;

/** Returns a sentence for each misspelled setting in the file and the environment. Call it after `readEnvironment`. */
export function findMisspelledSettings(envFile = '.env', env: NodeJS.ProcessEnv = process.env): string[] {
  const ofFile = Object.keys(parseSettingsFile(envFile));
  const ofEnvironment = Object.keys(env).filter((name) => OUR_PREFIX.test(name));
  return findMisspelled(new Set([...ofFile, ...ofEnvironment]), env);
}
