// Values of fields, as `plan` and `explain` print them.

export function formatValue(value: unknown): string {
  if (value === null || value === undefined) return '(nothing)';
  return typeof value === 'bigint' ? String(value) : JSON.stringify(value);
}

export function formatValues(values: readonly unknown[] = []): string {
  return values.length === 0 ? '(nothing)' : values.map(formatValue).join(', ');
}

/** `room.name: "Sal 1" → "Aula"`. */
export function describeChange(change: { field: string; old: readonly unknown[]; new: readonly unknown[] }) {
  return `${change.field}: ${formatValues(change.old)} → ${formatValues(change.new)}`;
}
