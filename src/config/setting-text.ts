// A secret in a file can be replaced while the program runs. So it is read each time it is used.
import { readSecretFile } from '../files/text-file.js';

/** A setting's text, or how to read it again. The function throws UsageError when its file cannot be read. */
export type SettingText = string | (() => string);

/** The text as it is now. */
export function currentText(setting: SettingText): string {
  return typeof setting === 'function' ? setting() : setting;
}

/**
 * Reads a secret's file now, which throws UsageError, and returns what reads it again. While it cannot be read, as in the
 * middle of a replacement, what was read last stays in use.
 */
export function readAgain(file: string, parse: (text: string) => string): () => string {
  let last = readSecretFile(file, parse);
  return () => {
    try {
      last = readSecretFile(file, parse);
    } catch {
      // The service or the server says so when the secret is not valid any more.
    }
    return last;
  };
}
