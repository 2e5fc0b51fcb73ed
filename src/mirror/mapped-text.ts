// Builds SQL for the text of a column's value. This text equals the text that the program makes of the value
// (column-values.ts, streams/field-values.ts), so that keys are the same everywhere and SQL can find the rows of an
// external id or reference. Texts are compared, matched and split by bytes, whatever the column's collation is.

const INTEGER_BITS: Readonly<Record<string, number>> = { smallint: 16, integer: 32, bigint: 64 };
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/**
 * Types for which a cast to text prints what the program prints. Other types are formatted by their output function,
 * because a cast may print something else, as for `inet`.
 */
const CASTS_AS_READ = new Set([
  ...Object.keys(INTEGER_BITS),
  'text',
  'character varying',
  'character',
  'bpchar',
  'boolean',
  'uuid',
  'numeric',
  'real',
  'double precision',
  'oid',
  'interval',
  'date',
  'timestamp without time zone',
  'timestamp with time zone',
]);

/** True if the type is a list. `box[]` is read as one text, because PostgreSQL separates boxes by semicolons. */
export const isList = (type: string) => type.endsWith('[]') && type !== 'box[]';
export const isJson = (type: string) => ['json', 'jsonb', 'json[]', 'jsonb[]'].includes(type);

/** True if each value of the type has exactly one text, in the key of a row and in a reference to the row. */
export const isKeyType = (type: string) => !isList(type) && !isJson(type);

/** Returns true if a column of the type can be compared with a text that is cast to the type. */
export function isSingleValue(type: string): boolean {
  return isKeyType(type) && type !== 'bytea';
}

/** True if the text of a value depends on session settings, which sessions that run triggers may not share. */
export const dependsOnSession = (type: string) => type === 'money' || /^reg[a-z]+$/.test(type);

/**
 * Returns true if the text can be a value of the type. Only the most frequent key types are checked. Otherwise one
 * invalid text among many would prevent the use of the index.
 */
export function mayBeText(text: string, type: string): boolean {
  if (text.includes('\0')) return false;
  if (type === 'uuid') return UUID.test(text);
  const bits = INTEGER_BITS[type];
  if (bits === undefined) return true;
  return /^(0|-?[1-9][0-9]{0,18})$/.test(text) && BigInt.asIntN(bits, BigInt(text)) === BigInt(text);
}

/** Returns true if PostgreSQL can cast every text that passes `mayBeText` to the type. */
export function readsOwnText(type: string): boolean {
  return type in INTEGER_BITS || ['uuid', 'text', 'character varying'].includes(type);
}

/** Returns SQL for the text of one value, even if the value cannot be sent. Null if the value is null. */
export function valueText(value: string, type: string): string {
  // `IS NOT NULL` would be false for a composite value that has a null part, so `IS DISTINCT FROM NULL` is used.
  const text = CASTS_AS_READ.has(type)
    ? `${value}::text`
    : `CASE WHEN ${value} IS DISTINCT FROM NULL THEN format('%s', ${value}) END`;
  if (type !== 'real' && type !== 'double precision') return `(${text}) COLLATE "C"`;
  // Prints a number as JavaScript does: with an exponent from 1e21 on and below 1e-6, without a leading zero in the
  // exponent. The printed text is compared with these limits, since JavaScript parses it: a `real` printed as 1e-06 is
  // below 1e-6.
  const size = `abs(${text}::float8)`;
  return `(CASE WHEN ${text} ~ '[NI]' THEN ${text} WHEN ${value} = 0 THEN '0' WHEN ${size} >= 1e21 THEN ${text}
    WHEN ${size} < 1e-6 THEN replace(${text}, 'e-0', 'e-') ELSE ${text}::numeric::text END) COLLATE "C"`;
}

/** Returns SQL for the text of a column's only value. Null without a value, with several, or if it cannot be sent. */
export function mappedText(value: string, type: string): string {
  if (isList(type) || isJson(type))
    return `(SELECT min(slotsync_text) FROM (${mappedTexts(value, type)}) AS slotsync_texts HAVING count(*) = 1)`;
  const text = valueText(value, type);
  switch (type) {
    case 'real':
    case 'double precision':
    case 'numeric':
      return `CASE WHEN ${text} !~ '[NI]' THEN ${text} END`;
    case 'date':
    case 'timestamp without time zone':
    case 'timestamp with time zone':
      return `CASE WHEN ${text} ~ '^[0-9]{4}-' AND ${text} !~ 'BC$' THEN ${text} END`;
    case 'bytea':
      return 'NULL::text';
    default:
      return text;
  }
}

/** Returns a query for the texts of a list's non-null elements. The text is null if an element cannot be sent. */
export function mappedTexts(value: string, type: string): string {
  if (isJson(type))
    return `SELECT ${jsonText('slotsync_element')} AS slotsync_text
      FROM jsonb_path_query(to_jsonb(${value}), 'strict $.** ? (@.type() != "array" && @.type() != "null")') AS slotsync_element`;
  // `unnest` is in the select list, because in FROM it would turn a null composite into a composite with null parts.
  return `SELECT ${mappedText('slotsync_element', type.slice(0, -2))} AS slotsync_text
    FROM (SELECT unnest(${value}) AS slotsync_element) AS slotsync_elements WHERE slotsync_element IS DISTINCT FROM NULL`;
}

/** Returns an SQL expression for the text of one JSON value. Numbers are printed as JavaScript prints them. */
function jsonText(value: string): string {
  const text = `(${value} #>> '{}')`;
  return `CASE jsonb_typeof(${value}) WHEN 'object' THEN NULL WHEN 'number' THEN
    CASE WHEN abs(${text}::numeric) < 2.48e-324 THEN '0' WHEN abs(${text}::numeric) <= 1.7976931348623157e308
      THEN ${valueText(`(${text}::numeric::float8)`, 'double precision')} END
    ELSE ${text} END COLLATE "C"`;
}
