// Reads a secret in a file each time it is used, so that the secret can be replaced while the program runs.
import { readSecretFile } from '../files/text-file.js';

/** Text of a setting, or a function that reads the text again. */
export type SettingText = string | (() => string);

export function currentText(setting: SettingText): string {
  return typeof setting === 'function' ? setting() : setting;
}

/**
 * Reads a secret's file, and returns a function that reads it again. Throws UsageError if the first read fails. If a
 * later read fails, for example in the middle of a replacement, the function returns the last text.
 */
export function readAgain(file: string, parse: (text: string) => string): () => string {
  let last = readSecretFile(file, parse);
  return () => {
    try {
      last = readSecretFile(file, parse);
    } catch {
      // If the last text is no longer valid, the service or the server reports this.
    }
    return last;
  };
}
