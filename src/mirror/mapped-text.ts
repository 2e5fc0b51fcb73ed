// A column's value in SQL as the mapping sends it (column-values.ts reads it, streams/field-values.ts makes it text). So
// SQL can be asked which rows give an external id or a reference, and answers what the mapping would.

const INTEGER_BITS: Readonly<Record<string, number>> = { smallint: 16, integer: 32, bigint: 64 };
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** Whether the values of a type are compared with a text by casting that text: one value, as the column prints it. */
export function isSingleValue(type: string): boolean {
  return !type.endsWith('[]') && !['json', 'jsonb', 'bytea'].includes(type);
}

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

/** The text of the only value that a column gives. Null when it gives none, several, or one that cannot be sent. */
export function mappedText(value: string, type: string): string {
  if (type.endsWith('[]'))
    return `(SELECT min(${mappedText('slotsync_element', type.slice(0, -2))}) FROM unnest(${value}) AS slotsync_element
      WHERE slotsync_element IS NOT NULL HAVING count(*) = 1)`;
  const text = `${value}::text`;
  switch (type) {
    case 'real':
    case 'double precision':
      // JavaScript writes exponents from 1e21 on and below 1e-6, and no zero before a digit of theirs.
      return `CASE WHEN ${text} ~ '[NI]' THEN NULL WHEN ${value} = 0 THEN '0' WHEN abs(${value}) >= 1e21 THEN ${text}
        WHEN abs(${value}) < 1e-6 THEN replace(${text}, 'e-0', 'e-') ELSE ${text}::numeric::text END`;
    case 'numeric':
      return `CASE WHEN ${text} !~ '[NI]' THEN ${text} END`;
    case 'date':
    case 'timestamp without time zone':
    case 'timestamp with time zone':
      return `CASE WHEN ${text} ~ '^[0-9]{4}-' AND ${text} !~ 'BC$' THEN ${text} END`;
    case 'json':
    case 'jsonb':
      return `CASE jsonb_typeof(${value}::jsonb) WHEN 'string' THEN ${value} #>> '{}' WHEN 'boolean' THEN ${value} #>> '{}'
        WHEN 'number' THEN trim_scale((${value} #>> '{}')::numeric)::text END`;
    case 'bytea':
      return 'NULL::text';
    default:
      return text;
  }
}
