// Records traces through the API package of OpenTelemetry. Without an SDK (tracing-export.ts, or one that was loaded
// before the program) every call does nothing. The planning of a run, a batch and a request are spans. Attributes are
// numbers, names of the configuration, and codes: never a key, a value or a body.
//
// A run is planned in one job, and its batches are applied in other jobs, maybe by other processes. These jobs carry
// the `traceparent` of the planning, so that the whole run is one trace.
import {
  context,
  ProxyTracerProvider,
  SpanKind,
  SpanStatusCode,
  trace,
  type Attributes,
  type Context,
} from '@opentelemetry/api';
import { codeOf } from '../errors/errors.js';

const NAME = 'slotsync';
/** Format of W3C Trace Context: version, trace id, span id, flags. */
const TRACEPARENT = /^00-([\da-f]{32})-([\da-f]{16})-([\da-f]{2})$/;

/** Position in a trace, that is, a context with its active span. */
export type Place = Context;

interface SpanOptions {
  /** `traceparent` of the span in which the run was planned. The jobs of its batches carry it. */
  parent?: string | undefined;
  isRequest?: boolean;
}

/** Attributes of a span, and the positions in traces with whose spans it is linked. */
export interface SpanNotes {
  attributes?: Attributes;
  links?: readonly Place[];
}

export type OpenSpan = ReturnType<typeof openSpan>;

/** Begins a span. The caller runs each step of the work in `within`, and ends the span. */
export function openSpan(
  name: string,
  attributes: Attributes,
  { parent, isRequest = false }: SpanOptions = {},
) {
  const around = parent === undefined ? context.active() : placeOf(parent);
  const kind = isRequest ? SpanKind.CLIENT : SpanKind.INTERNAL;
  const span = trace.getTracer(NAME).startSpan(name, { kind, attributes }, around);
  return {
    /** Runs the work in the span. If the work throws, the span gets the error's code. */
    within: <T>(work: () => Promise<T>): Promise<T> =>
      context.with(trace.setSpan(around, span), async () => {
        try {
          return await work();
        } catch (error) {
          noteFailure(codeOf(error));
          throw error;
        }
      }),
    end: () => span.end(),
  };
}

/** Runs the work in a span that ends with the work. If the work throws, the span gets the error's code. */
export async function inSpan<T>(
  name: string,
  attributes: Attributes,
  work: () => Promise<T>,
  options: SpanOptions = {},
): Promise<T> {
  const span = openSpan(name, attributes, options);
  try {
    return await span.within(work);
  } finally {
    span.end();
  }
}

/** Adds attributes to the active span. */
export function noteInSpan(attributes: Attributes): void {
  trace.getActiveSpan()?.setAttributes(attributes);
}

/** Marks the active span as failed with this code. */
export function noteFailure(code: string): void {
  trace.getActiveSpan()?.setAttribute('error.type', code).setStatus({ code: SpanStatusCode.ERROR });
}

/** Returns the present position in the trace. */
export const here = (): Place => context.active();

/** Calls `work` as if it were called at that position of a trace. */
export const at = <T>(place: Place, work: () => T): T => context.with(place, work);

/** Links the active span with the spans at these positions. */
export function linkTo(places: readonly Place[]): void {
  const links = places.flatMap((place) => {
    const linked = trace.getSpanContext(place);
    return linked ? [{ context: linked }] : [];
  });
  if (links.length > 0) trace.getActiveSpan()?.addLinks(links);
}

/** Returns the active span as a W3C `traceparent`, which jobs carry, or undefined if no span is active. */
export function traceparent(): string | undefined {
  const active = trace.getSpanContext(context.active());
  if (!active) return undefined;
  return `00-${active.traceId}-${active.spanId}-${active.traceFlags.toString(16).padStart(2, '0')}`;
}

/** Returns the ids of the active trace and span, for a log line. */
export function traceIds(): { trace_id?: string; span_id?: string } {
  const active = trace.getSpanContext(context.active());
  return active ? { trace_id: active.traceId, span_id: active.spanId } : {};
}

/** Returns true if an SDK was registered, for example by `node --require`. */
export function isRegistered(): boolean {
  const provider = trace.getTracerProvider();
  return !(provider instanceof ProxyTracerProvider) || provider.getDelegateTracer(NAME) !== undefined;
}

/** Removes everything that an SDK has registered. */
export function unregister(): void {
  trace.disable();
  context.disable();
}

function placeOf(parent: string): Place {
  const [, traceId, spanId, flags] = TRACEPARENT.exec(parent) ?? [];
  if (traceId === undefined || spanId === undefined || flags === undefined) return context.active();
  const remote = { traceId, spanId, traceFlags: Number.parseInt(flags, 16), isRemote: true };
  return trace.setSpanContext(context.active(), remote);
}
