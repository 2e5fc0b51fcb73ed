// Text files of the operator: settings, configurations, lists of keys, and files with one secret each.
import { readFileSync, statSync } from 'node:fs';
import { codeOf, UsageError } from './errors.js';

/** Rights of a file by which users other than its owner and group may read it. */
const READ_BY_OTHERS = 0o004;

/** The text of a file, without a byte order mark. Throws UsageError, without the text, when it cannot be read. */
export function readTextFile(file: string): string {
  let bytes: Buffer;
  try {
    if (statSync(file).isDirectory()) throw new UsageError(`${file} is a folder`);
    bytes = readFileSync(file);
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError(`${file} cannot be read (${codeOf(error)})`, { cause: error });
  }
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    if (!text.includes('\0')) return text;
  } catch {
    // Not UTF-8: reported below.
  }
  throw new UsageError(`${file} is not UTF-8 text`);
}

/** The one line that a secret's file holds. Throws UsageError, without the line, when it holds none or several. */
export function readSecretFile(file: string): string {
  const secret = readTextFile(file).trim();
  if (secret === '') throw new UsageError(`${file} is empty`);
  if (/[\r\n]/.test(secret)) throw new UsageError(`${file} contains more than one line`);
  return secret;
}

/** Whether every user of this machine may read a file. False for one that is not there. */
export function isReadableByOthers(file: string): boolean {
  if (process.platform === 'win32') return false; // has no such rights
  const mode = statSync(file, { throwIfNoEntry: false })?.mode ?? 0;
  return (mode & READ_BY_OTHERS) !== 0;
}
