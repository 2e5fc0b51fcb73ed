// Text of a row, a key or an answer may contain control characters: a terminal would move its cursor, set its title or
// reverse the text direction. Every text that is printed or logged passes through here.

/** Control characters but the line feed, line separators, and marks of direction. */
const OBEYED = /(?!\n)[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu;

/** The text with such characters written as JSON escapes them, so that JSON keeps its meaning. */
export function visible(text: string): string {
  return text.replace(OBEYED, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
