// Values of fields, as `plan` and `explain` print them.
import type { FieldValues } from '../streams/destination-object.js';

export function formatValue(value: unknown): string {
  if (value === null || value === undefined) return '(nothing)';
  return typeof value === 'bigint' ? String(value) : JSON.stringify(value);
}

export function formatValues(values: readonly unknown[] = []): string {
  return values.length === 0 ? '(nothing)' : values.map(formatValue).join(', ');
}

export function describeFields(fields: readonly FieldValues[]): string[] {
  return fields.map(({ fieldId, values }) => `  ${fieldId}: ${values.map(formatValue).join(', ')}`);
}

/** `room.name: "Sal 1" → "Aula"`. */
export function describeChange(change: { field: string; old: readonly unknown[]; new: readonly unknown[] }) {
  return `${change.field}: ${formatValues(change.old)} → ${formatValues(change.new)}`;
}
