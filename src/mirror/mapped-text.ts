// The text of a column's value in SQL, as the program makes it of the same value (column-values.ts reads it,
// streams/field-values.ts makes it text). So keys are the same wherever they are made, and SQL can be asked which rows give
// an external id or a reference. Every text is compared, matched and split by its bytes, whatever the column's collation.

const INTEGER_BITS: Readonly<Record<string, number>> = { smallint: 16, integer: 32, bigint: 64 };
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/**
 * Types whose cast to text prints what their output function does, and the two of which the program makes what the cast
 * prints: `true`, and a text without padding. Of others the cast may print something else, as that of `inet` does.
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

/** Whether a value is a list. What separates boxes is not what separates everything else: they are read as one text. */
export const isList = (type: string) => type.endsWith('[]') && type !== 'box[]';
export const isJson = (type: string) => ['json', 'jsonb', 'json[]', 'jsonb[]'].includes(type);

/** Whether each value has one text, for the key of a row as for a reference to it. */
export const isKeyType = (type: string) => !isList(type) && !isJson(type);

/** Whether the values of a type are compared with a text by casting that text: one value, as the column prints it. */
export function isSingleValue(type: string): boolean {
  return isKeyType(type) && type !== 'bytea';
}

/** Whether the text depends on settings of the session that only those of the mirror have alike. */
export const dependsOnSession = (type: string) => type === 'money' || /^reg[a-z]+$/.test(type);

/**
 * Whether the text can be that of a value of the type. Decided here for types that identify rows most often, so that one
 * strange text among many does not rule out the index.
 */
export function mayBeText(text: string, type: string): boolean {
  if (text.includes('\0')) return false;
  if (type === 'uuid') return UUID.test(text);
  const bits = INTEGER_BITS[type];
  if (bits === undefined) return true;
  return /^(0|-?[1-9][0-9]{0,18})$/.test(text) && BigInt.asIntN(bits, BigInt(text)) === BigInt(text);
}

/** Whether every text of which `mayBeText` is true can be cast to the type. */
export function readsOwnText(type: string): boolean {
  return type in INTEGER_BITS || ['uuid', 'text', 'character varying'].includes(type);
}

/** The text of one value, also of one that cannot be sent. Null when the value is null. */
export function valueText(value: string, type: string): string {
  // A composite value is null only when it is not there, whatever its parts are.
  const text = CASTS_AS_READ.has(type)
    ? `${value}::text`
    : `CASE WHEN ${value} IS DISTINCT FROM NULL THEN format('%s', ${value}) END`;
  if (type !== 'real' && type !== 'double precision') return `(${text}) COLLATE "C"`;
  // JavaScript writes exponents from 1e21 on and below 1e-6, and no zero before a digit of theirs. It reads the text: a
  // `real` that prints as 1e-06 is less than that.
  const size = `abs(${text}::float8)`;
  return `(CASE WHEN ${text} ~ '[NI]' THEN ${text} WHEN ${value} = 0 THEN '0' WHEN ${size} >= 1e21 THEN ${text}
    WHEN ${size} < 1e-6 THEN replace(${text}, 'e-0', 'e-') ELSE ${text}::numeric::text END) COLLATE "C"`;
}

/** The text of the only value of a column. Null when it has none, several, or one that cannot be sent. */
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

/** A query for the texts, `slotsync_text`, of the values in a list that are not null. Null: one cannot be sent. */
export function mappedTexts(value: string, type: string): string {
  if (isJson(type))
    return `SELECT ${jsonText('slotsync_element')} AS slotsync_text
      FROM jsonb_path_query(to_jsonb(${value}), 'strict $.** ? (@.type() != "array" && @.type() != "null")') AS slotsync_element`;
  // In FROM, a composite value that is null would be one whose parts are.
  return `SELECT ${mappedText('slotsync_element', type.slice(0, -2))} AS slotsync_text
    FROM (SELECT unnest(${value}) AS slotsync_element) AS slotsync_elements WHERE slotsync_element IS DISTINCT FROM NULL`;
}

/** The text of one value of JSON: its numbers are those of JavaScript. */
function jsonText(value: string): string {
  const text = `(${value} #>> '{}')`;
  return `CASE jsonb_typeof(${value}) WHEN 'object' THEN NULL WHEN 'number' THEN
    CASE WHEN abs(${text}::numeric) < 2.48e-324 THEN '0' WHEN abs(${text}::numeric) <= 1.7976931348623157e308
      THEN ${valueText(`(${text}::numeric::float8)`, 'double precision')} END
    ELSE ${text} END COLLATE "C"`;
}
