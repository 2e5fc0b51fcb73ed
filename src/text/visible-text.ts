// Escapes control characters in every text that is printed, logged or rendered. A row, a key or an answer may contain
// them: a terminal would move its cursor, set its title or reverse the text direction, and a line feed would begin a
// line that looks like a line of slotsync.

/** Matches control characters except the line feed, line separators, and marks of text direction. */
const OBEYED = /(?!\n)[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu;

/** Escapes control characters as JSON does, so that JSON text keeps its meaning. */
export function visible(text: string): string {
  return text.replace(OBEYED, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** Escapes control characters and line feeds, so that the text begins no new line. */
export function visibleInLine(text: string): string {
  return visible(text).replaceAll('\n', String.raw`\n`);
}
