// Figures that several benches compute and print.

/** The quota under measurement, in requests a second. */
export const RATE = 20;

/** The most requests a second that a quota allows when a slot is held until the answer. */
export function ceiling(meanLatencyMs: number): number {
  return RATE / (1 + meanLatencyMs / 1000);
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** The least value that at least this part of the values does not exceed. */
export function quantile(values: readonly number[], part: number): number {
  return values.toSorted((a, b) => a - b)[Math.ceil(part * values.length) - 1] ?? NaN;
}

export function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}

export function megabytes(bytes: number | undefined): string {
  return bytes === undefined ? '–' : String(Math.round(bytes / 1024 ** 2));
}

/** On standard error, so that the figures can be redirected. */
export function showProgress(done: number, total: number): void {
  process.stderr.write(`${done} of ${total} measured\n`);
}
