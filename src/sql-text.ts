// Texts as PostgreSQL reads them, where a statement cannot have parameters or a driver would have to ask for types.

/** A text as SQL writes it, whatever it holds: COPY takes no parameters. */
export function quoteLiteral(text: string): string {
  const quoted = `'${text.replaceAll("'", "''").replaceAll('\\', '\\\\')}'`;
  return text.includes('\\') ? ` E${quoted}` : quoted;
}

/** A list of texts as PostgreSQL writes an array. */
export function arrayLiteral(texts: readonly string[]): string {
  return `{${texts.map((text) => `"${text.replace(/["\\]/g, '\\$&')}"`).join(',')}}`;
}
