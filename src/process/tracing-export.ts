// Sends traces to a collector, by OTLP over HTTP. Loaded only if a variable of OpenTelemetry names a collector; the SDK
// reads its other variables itself. A collector that does not answer delays no run. It delays the end of the process by
// a few seconds at most.
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { detectResources, envDetector, resourceFromAttributes } from '@opentelemetry/resources';
import { BatchSpanProcessor, NodeTracerProvider } from '@opentelemetry/sdk-trace-node';
import { codeOf, messageOf } from '../errors/errors.js';
import { openDeadline } from '../time/deadline.js';
import { endsWithin } from './lifecycle.js';
import type { Logger } from './logger.js';
import { isRegistered, unregister } from './tracing.js';

/** Timeout of one export with its retries. It is shorter than the wait at the end of the process. */
const EXPORT_WITHIN_MS = 2500;
/** An export that has not ended after this time was reported and is abandoned. */
const GIVE_UP_MS = EXPORT_WITHIN_MS + 250;

/** Registers an SDK until it is closed. Returns undefined if another SDK is registered, which then gets the spans. */
export function startTracing(log: Logger): { close(): Promise<void> } | undefined {
  if (isRegistered()) return undefined;
  const exporter = new ReportingExporter(log);
  const named = resourceFromAttributes({ 'service.name': 'slotsync' });
  const provider = new NodeTracerProvider({
    // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.
    resource: named.merge(detectResources({ detectors: [envDetector] })),
    spanProcessors: [new BatchSpanProcessor(exporter, { exportTimeoutMillis: GIVE_UP_MS })],
  });
  provider.register({ propagator: null });
  return {
    /** Sends the remaining spans and removes the SDK. */
    async close(): Promise<void> {
      try {
        await provider.shutdown();
      } catch {
        await exporter.shutdown(); // unsent spans were reported
      } finally {
        unregister();
      }
    },
  };
}

type Export = Parameters<OTLPTraceExporter['export']>;

/** An exporter that logs its first failure, because the SDK itself logs nothing. */
class ReportingExporter extends OTLPTraceExporter {
  readonly #log: Logger;
  #isReported = false;

  constructor(log: Logger) {
    super({ timeoutMillis: EXPORT_WITHIN_MS });
    this.#log = log;
  }

  override export(spans: Export[0], done: Export[1]): void {
    // The exporter's own timeout restarts with each byte of an answer.
    const deadline = openDeadline({ ms: EXPORT_WITHIN_MS });
    deadline.signal.addEventListener('abort', () => this.#report(deadline.signal.reason as Error));
    super.export(spans, (result) => {
      deadline.end();
      if (result.error) this.#report(result.error);
      done(result);
    });
  }

  override async shutdown(): Promise<void> {
    await endsWithin(super.shutdown(), 0); // does not wait for abandoned exports
  }

  #report(error: Error): void {
    if (this.#isReported) return;
    this.#isReported = true;
    const reason = whatHappened(error);
    this.#log.warn({ reason }, 'traces cannot be sent; check OTEL_EXPORTER_OTLP_ENDPOINT');
  }
}

/** Returns the collector's status, but nothing else of its answer, which may repeat what was sent. */
function whatHappened(error: Error & { code?: unknown }): string {
  if (typeof error.code === 'number') return `the collector answered HTTP ${error.code}`;
  const code = codeOf(error);
  return code === 'unexpected' ? messageOf(error) : `the collector cannot be reached (${code})`;
}
