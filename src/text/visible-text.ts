// Text of a row, a key or an answer may contain control characters: a terminal would move its cursor, set its title or
// reverse the text direction, and a line feed would begin a line that looks like one of ours. Every text that is printed,
// logged or rendered passes through here.

/** Control characters but the line feed, line separators, and marks of direction. */
const OBEYED = /(?!\n)[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu;

/** The text with such characters written as JSON escapes them, so that JSON keeps its meaning. */
export function visible(text: string): string {
  return text.replace(OBEYED, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** The same for a text that is part of a line, or is one: it begins no other. */
export function visibleInLine(text: string): string {
  return visible(text).replaceAll('\n', String.raw`\n`);
}
