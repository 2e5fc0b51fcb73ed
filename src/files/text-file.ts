// Text files of the operator: settings, configurations, lists of keys, files with one secret each, and files that commands write.
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

/** Rights of a file by which users other than its owner and group may read it. */
const READ_BY_OTHERS = 0o004;
/** In a folder with this bit, such as /tmp, nobody replaces files of others. */
const STICKY = 0o1000;

const MB = 1024 * 1024;

/**
 * The text of a file, without a byte order mark. Throws UsageError, without the text, when it cannot be read, is larger than
 * `mostBytes`, or is a pipe, unless `pipes`: whoever reads one waits for its writer.
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

/** Throws UsageError when a file cannot be written because of its folder. */
export function requireWritableFolder(file: string): void {
  try {
    accessSync(path.dirname(file), constants.W_OK);
  } catch (error) {
    throw cannotBeWritten(file, error);
  }
}

/** Writes a file that is not there yet. Throws UsageError when it is, or cannot be written. */
export function writeNewFile(file: string, text: string): void {
  try {
    writeFileSync(file, text, { flag: 'wx' });
  } catch (error) {
    if (codeOf(error) === 'EEXIST')
      throw new UsageError(`${file} exists, and nothing is overwritten`, {
        remedy: 'Move it away, or name another file.',
        cause: error,
      });
    throw cannotBeWritten(file, error);
  }
}

/** Writes a file whole: whoever reads it has the former text or the new one. Throws UsageError when it cannot be written. */
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

/** The secret that a file's one line holds. Throws UsageError, without the line, when it holds none, several or another. */
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

/** Whether every user of this machine may read a file. False for one that is not there. */
export function isReadableByOthers(file: string): boolean {
  if (process.platform === 'win32') return false; // has no such rights
  const mode = statSync(file, { throwIfNoEntry: false })?.mode ?? 0;
  return (mode & READ_BY_OTHERS) !== 0;
}

/** A fault of a file's rights, as a clause, and the command that mends it. */
interface OtherWriters {
  reason: string;
  remedy: string;
}

/**
 * The users that could have written a file of which this process does what it says: anybody but this user, root and the owner of
 * this program, who controls the process anyway. Undefined: nobody else, or the file cannot be read at all.
 */
export function findOtherWriters(file: string): OtherWriters | undefined {
  const user = process.geteuid?.();
  if (user === undefined) return undefined; // Windows has no such rights
  const folder = path.dirname(file);
  const [stats, folderStats, program] = [file, folder, fileURLToPath(import.meta.url)].map(statsOf);
  if (!stats || !folderStats) return undefined;
  const { uid, gid, mode } = stats;
  if (![user, 0, program?.uid].includes(uid))
    return { reason: `user ${uid} owns it`, remedy: `chown ${user} ${file}` };
  // A user that has a group of its own, with the same number, often makes files that this group may write.
  const others = uid !== 0 && gid === uid ? constants.S_IWOTH : constants.S_IWGRP | constants.S_IWOTH;
  if ((mode & others) !== 0) return { reason: 'other users may write it', remedy: `chmod go-w ${file}` };
  return (folderStats.mode & (constants.S_IWOTH | STICKY)) === constants.S_IWOTH
    ? { reason: 'every user may replace it', remedy: `chmod o-w ${folder}` }
    : undefined;
}

function statsOf(file: string) {
  try {
    return statSync(file);
  } catch {
    return undefined; // reading it says why
  }
}

// A file that a command writes piece by piece, for as many rows as there are. It may hold personal data: only its owner
// reads it, and it has its name when it is complete.

/** Rights of the owner alone. */
const PRIVATE = 0o600;

/**
 * Opens a file beside the one that is named, which it replaces when it is closed; without that, the process removes it at its
 * end. No symbolic link is followed. Throws UsageError when it cannot be written.
 */
export async function openOutputFile(file: string) {
  requireReplaceable(file);
  const beside = `${file}.${process.pid}.unfinished`;
  const remove = () => rmSync(beside, { force: true });
  const asUsageError = (error: unknown) => {
    throw cannotBeWritten(file, error);
  };
  try {
    remove(); // of a process that was killed
  } catch (error) {
    asUsageError(error);
  }
  const stream = createWriteStream(beside, { flags: 'wx', mode: PRIVATE });
  const failed = finished(stream).catch(asUsageError);
  failed.catch(() => undefined); // whoever writes or closes gets the error
  await Promise.race([once(stream, 'open'), failed]);
  process.once('exit', remove);
  return {
    /** Waits while the disk is slower than the rows. */
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

/** A link, a device or a pipe in its place would be lost, or lead elsewhere. */
function requireReplaceable(file: string): void {
  let found;
  try {
    found = lstatSync(file, { throwIfNoEntry: false });
  } catch {
    return; // opening it says why
  }
  if (!found || found.isFile()) return;
  if (found.isDirectory()) throw new UsageError(`${file} is a folder`, { remedy: 'Name the file in it.' });
  throw new UsageError(`${file} is no ordinary file, and only such a one is replaced`, {
    remedy: 'Name a file, or one that is not there yet.',
  });
}
