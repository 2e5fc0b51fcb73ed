// Traces of a test, kept in memory. The SDK is registered for the whole process, so it is taken back.
import {
  InMemorySpanExporter,
  NodeTracerProvider,
  SimpleSpanProcessor,
  type ReadableSpan,
} from '@opentelemetry/sdk-trace-node';
import { unregister } from '../../src/process/tracing.js';

/** Registers an SDK until `end` is called. */
export function keepSpans() {
  const exporter = new InMemorySpanExporter();
  const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
  provider.register();
  return {
    /** Spans that have ended, of this name when given. */
    spans: (name?: string): ReadableSpan[] =>
      exporter.getFinishedSpans().filter((span) => name === undefined || span.name === name),
    end(): void {
      unregister();
    },
  };
}

export const idOf = (span: ReadableSpan | undefined) => span?.spanContext().spanId;
export const traceOf = (span: ReadableSpan | undefined) => span?.spanContext().traceId;
export const parentOf = (span: ReadableSpan | undefined) => span?.parentSpanContext?.spanId;
