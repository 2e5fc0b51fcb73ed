// Reads and writes text files of the operator: settings, configurations, lists of keys, files with one secret each, and
// output files of commands.
import {
  accessSync,
  constants,
  existsSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
  createWriteStream,
  lstatSync,
} from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { codeOf, messageOf, UsageError } from '../errors/errors.js';
import { once } from 'node:events';
import { rename } from 'node:fs/promises';
import { finished } from 'node:stream/promises';

/** Permission bit by which users other than the owner and the group may read a file. */
const READ_BY_OTHERS = 0o004;
/** Permission bit of a folder such as /tmp, in which users cannot replace files of other users. */
const STICKY = 0o1000;

const MB = 1024 * 1024;

/**
 * Returns the text of a file, without a byte order mark. Throws UsageError, without the text, if the file cannot be
 * read, is not UTF-8, is larger than `mostBytes`, or is a pipe. With `pipes`, a pipe is read, which waits for its
 * writer.
 */
export function readTextFile(file: string, { pipes = false, mostBytes = 64 * MB } = {}): string {
  let bytes: Buffer;
  try {
    const stats = statSync(file);
    if (stats.isDirectory()) throw new UsageError(`${file} is a folder`);
    if (!stats.isFile() && !(pipes && stats.isFIFO()))
      throw new UsageError(`${file} is a pipe or a device, not a file`);
    if (stats.size > mostBytes) throw new UsageError(`${file} is larger than ${mostBytes / MB} MB`);
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

/** Throws UsageError if a file cannot be written because of its folder. */
export function requireWritableFolder(file: string): void {
  try {
    accessSync(path.dirname(file), constants.W_OK);
  } catch (error) {
    throw cannotBeWritten(file, error);
  }
}

/** Writes a new file. Throws UsageError if the file exists or cannot be written. */
export function writeNewFile(file: string, text: string): void {
  try {
    writeFileSync(file, text, { flag: 'wx' });
  } catch (error) {
    if (codeOf(error) === 'EEXIST')
      throw new UsageError(`${file} already exists and is not overwritten`, {
        remedy: 'Move it away, or name another file.',
        cause: error,
      });
    throw cannotBeWritten(file, error);
  }
}

/** Replaces a file atomically: a reader gets the former or the new text. Throws UsageError if that fails. */
export function replaceFile(file: string, text: string): void {
  const beside = `${file}.${process.pid}.tmp`;
  try {
    writeFileSync(beside, text, { flag: 'wx' });
    renameSync(beside, file);
  } catch (error) {
    if (existsSync(beside)) rmSync(beside);
    throw cannotBeWritten(file, error);
  }
}

function cannotBeWritten(file: string, cause: unknown): UsageError {
  return new UsageError(`${file} cannot be written (${codeOf(cause)})`, {
    remedy: 'Name a file in a folder that exists and that you may write to, on a disk with room.',
    cause,
  });
}

/** Returns the secret in a file. Throws UsageError, without the text, if the file has not exactly one valid line. */
export function readSecretFile(file: string, parse: (line: string) => string): string {
  const line = readTextFile(file, { mostBytes: MB }).trim();
  if (line === '') throw new UsageError(`${file} is empty`);
  if (/[\r\n]/.test(line)) throw new UsageError(`${file} contains more than one line`);
  try {
    return parse(line);
  } catch (error) {
    throw new UsageError(`${file}: ${messageOf(error)}`);
  }
}

/** Returns true if every user of this machine may read a file. False if the file does not exist. */
export function isReadableByOthers(file: string): boolean {
  if (process.platform === 'win32') return false; // Windows has no such permissions
  const mode = statSync(file, { throwIfNoEntry: false })?.mode ?? 0;
  return (mode & READ_BY_OTHERS) !== 0;
}

/** Fault of a file's permissions, as a clause, and the command that corrects it. */
interface OtherWriters {
  reason: string;
  remedy: string;
}

/**
 * Returns a fault if a file that controls this process could have been written by users other than this user, root and
 * the owner of this program, who controls the process anyway. Undefined if not, or if the file cannot be read.
 */
export function findOtherWriters(file: string): OtherWriters | undefined {
  const user = process.geteuid?.();
  if (user === undefined) return undefined; // Windows has no such permissions
  const folder = path.dirname(file);
  const [stats, folderStats, program] = [file, folder, fileURLToPath(import.meta.url)].map(statsOf);
  if (!stats || !folderStats) return undefined;
  const { uid, gid, mode } = stats;
  if (![user, 0, program?.uid].includes(uid))
    return { reason: `user ${uid} owns the file`, remedy: `chown ${user} ${file}` };
  // A user often has a private group of the same number. Files that this group may write are accepted.
  const others = uid !== 0 && gid === uid ? constants.S_IWOTH : constants.S_IWGRP | constants.S_IWOTH;
  if ((mode & others) !== 0)
    return { reason: 'other users can write to the file', remedy: `chmod go-w ${file}` };
  return (folderStats.mode & (constants.S_IWOTH | STICKY)) === constants.S_IWOTH
    ? { reason: 'every user can replace the file', remedy: `chmod o-w ${folder}` }
    : undefined;
}

function statsOf(file: string) {
  try {
    return statSync(file);
  } catch {
    return undefined; // reading the file reports the reason
  }
}

// Below: a file that a command writes piece by piece. It may contain personal data, so only its owner may read it. It
// gets its name when it is complete.

const PRIVATE = 0o600;

/**
 * Opens a temporary file, which replaces `file` when it is closed. If it is never closed, the process removes it at
 * exit. No symbolic link is followed. Throws UsageError if the file cannot be written.
 */
export async function openOutputFile(file: string) {
  requireReplaceable(file);
  const beside = `${file}.${process.pid}.unfinished`;
  const remove = () => rmSync(beside, { force: true });
  const asUsageError = (error: unknown) => {
    throw cannotBeWritten(file, error);
  };
  try {
    remove(); // the rest of a killed process with the same id
  } catch (error) {
    asUsageError(error);
  }
  const stream = createWriteStream(beside, { flags: 'wx', mode: PRIVATE });
  const failed = finished(stream).catch(asUsageError);
  failed.catch(() => undefined); // `write` and `close` throw the error
  await Promise.race([once(stream, 'open'), failed]);
  process.once('exit', remove);
  return {
    /** Writes text. Waits while the disk is slower than the text. */
    async write(text: string): Promise<void> {
      if (!stream.write(text)) await Promise.race([once(stream, 'drain'), failed]);
    },
    async close(): Promise<void> {
      stream.end();
      await failed;
      await rename(beside, file).catch(asUsageError);
      process.off('exit', remove);
    },
  };
}

/** Throws UsageError for a link, a device or a pipe, which would be lost or lead elsewhere if it were replaced. */
function requireReplaceable(file: string): void {
  let found;
  try {
    found = lstatSync(file, { throwIfNoEntry: false });
  } catch {
    return; // opening the file reports the reason
  }
  if (found && !found.isFile())
    throw new UsageError(`${file} is a folder, a link or a device: only an ordinary file is replaced`, {
      remedy: 'Name an ordinary file, or a new one.',
    });
}
