// Sends what is traced to a collector, by OTLP over HTTP. Loaded only when a variable of OpenTelemetry names one; the SDK
// reads its other variables itself. A collector that does not answer holds up no run, and the end of the process for a few
// seconds at most.
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { detectResources, envDetector, resourceFromAttributes } from '@opentelemetry/resources';
import { BatchSpanProcessor, NodeTracerProvider } from '@opentelemetry/sdk-trace-node';
import { codeOf, messageOf } from '../errors/errors.js';
import { openDeadline } from '../time/deadline.js';
import { endsWithin } from './lifecycle.js';
import type { Logger } from './logger.js';
import { isRegistered, unregister } from './tracing.js';

/** For one export, tries included: less than the end of the process waits for. */
const EXPORT_WITHIN_MS = 2500;
/** An export that has not ended by then was reported, and is not waited for. */
const GIVE_UP_MS = EXPORT_WITHIN_MS + 250;

/** Registers an SDK until it is closed; undefined: another one is registered, which then has the spans. */
export function startTracing(log: Logger): { close(): Promise<void> } | undefined {
  if (isRegistered()) return undefined;
  const exporter = new ReportingExporter(log);
  const named = resourceFromAttributes({ 'service.name': 'slotsync' });
  const provider = new NodeTracerProvider({
    // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.
    resource: named.merge(detectResources({ detectors: [envDetector] })),
    spanProcessors: [new BatchSpanProcessor(exporter, { exportTimeoutMillis: GIVE_UP_MS })],
  });
  provider.register({ propagator: null });
  return {
    /** Sends what is left. */
    async close(): Promise<void> {
      try {
        await provider.shutdown();
      } catch {
        await exporter.shutdown(); // what could not be sent was reported
      } finally {
        unregister();
      }
    },
  };
}

type Export = Parameters<OTLPTraceExporter['export']>;

/** Its first failure is logged; the SDK itself says nothing. */
class ReportingExporter extends OTLPTraceExporter {
  readonly #log: Logger;
  #isReported = false;

  constructor(log: Logger) {
    super({ timeoutMillis: EXPORT_WITHIN_MS });
    this.#log = log;
  }

  override export(spans: Export[0], done: Export[1]): void {
    // The exporter's own limit begins anew with each byte of an answer.
    const deadline = openDeadline({ ms: EXPORT_WITHIN_MS });
    deadline.signal.addEventListener('abort', () => this.#report(deadline.signal.reason as Error));
    super.export(spans, (result) => {
      deadline.end();
      if (result.error) this.#report(result.error);
      done(result);
    });
  }

  override async shutdown(): Promise<void> {
    await endsWithin(super.shutdown(), 0); // without what was given up
  }

  #report(error: Error): void {
    if (this.#isReported) return;
    this.#isReported = true;
    const reason = whatHappened(error);
    this.#log.warn({ reason }, 'traces cannot be sent; OTEL_EXPORTER_OTLP_ENDPOINT says where');
  }
}

/** The collector's status and no more of its answer, which may repeat what was sent. */
function whatHappened(error: Error & { code?: unknown }): string {
  if (typeof error.code === 'number') return `it answered HTTP ${error.code}`;
  const code = codeOf(error);
  return code === 'unexpected' ? messageOf(error) : `it cannot be reached (${code})`;
}
