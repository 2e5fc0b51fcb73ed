// A secret in a file can be replaced while the program runs. So it is read each time it is used.

/** A setting's text, or how to read it again. The function throws UsageError when its file cannot be read. */
export type SettingText = string | (() => string);

/** The text as it is now. */
export function currentText(setting: SettingText): string {
  return typeof setting === 'function' ? setting() : setting;
}
