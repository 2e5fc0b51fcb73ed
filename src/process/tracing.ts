// Traces, through the API package of OpenTelemetry alone: without an SDK (tracing-export.ts, or one that was loaded before
// the program) every call does nothing. A run's planning, a batch and a request are spans. Attributes are
// numbers, names of the configuration, and codes: never a key, a value or a body.
//
// A run is planned in one job and its batches are applied in others, maybe by other processes. Their jobs carry the
// planning's `traceparent`, so that the whole run is one trace.
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
/** As W3C Trace Context writes it: version, trace id, span id, flags. */
const TRACEPARENT = /^00-([\da-f]{32})-([\da-f]{16})-([\da-f]{2})$/;

/** The place in a trace where something was asked for. */
export type Place = Context;

interface SpanOptions {
  /** The place of the planning of its run, as its job carries it. */
  parent?: string | undefined;
  /** A request to another system. */
  isRequest?: boolean;
}

/** Attributes of a span, and the places whose spans are linked with it. */
export interface SpanNotes {
  attributes?: Attributes;
  links?: readonly Place[];
}

export type OpenSpan = ReturnType<typeof openSpan>;

/** Begins a span, of which each step is done in `within`. */
export function openSpan(
  name: string,
  attributes: Attributes,
  { parent, isRequest = false }: SpanOptions = {},
) {
  const around = parent === undefined ? context.active() : placeOf(parent);
  const kind = isRequest ? SpanKind.CLIENT : SpanKind.INTERNAL;
  const span = trace.getTracer(NAME).startSpan(name, { kind, attributes }, around);
  return {
    /** Does the work in the span. When it throws, the span has the error's code. */
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

/** Does the work in a span, which ends with it. When it throws, the span has the error's code. */
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

/** Adds attributes to the span in which this is called. */
export function noteInSpan(attributes: Attributes): void {
  trace.getActiveSpan()?.setAttributes(attributes);
}

/** The span in which this is called did not end well. */
export function noteFailure(code: string): void {
  trace.getActiveSpan()?.setAttribute('error.type', code).setStatus({ code: SpanStatusCode.ERROR });
}

/** The place in which this is called. */
export const here = (): Place => context.active();

/** Calls `work` as if it were called at that place. */
export const at = <T>(place: Place, work: () => T): T => context.with(place, work);

/** Links the span in which this is called with the spans of these places. */
export function linkTo(places: readonly Place[]): void {
  const links = places.flatMap((place) => {
    const linked = trace.getSpanContext(place);
    return linked ? [{ context: linked }] : [];
  });
  if (links.length > 0) trace.getActiveSpan()?.addLinks(links);
}

/** Names the span in which this is called, for a job; undefined without one. */
export function traceparent(): string | undefined {
  const active = trace.getSpanContext(context.active());
  if (!active) return undefined;
  return `00-${active.traceId}-${active.spanId}-${active.traceFlags.toString(16).padStart(2, '0')}`;
}

/** For a log line: the trace and the span in which it is written. */
export function traceIds(): { trace_id?: string; span_id?: string } {
  const active = trace.getSpanContext(context.active());
  return active ? { trace_id: active.traceId, span_id: active.spanId } : {};
}

/** Whether an SDK was registered, such as by `node --require`. */
export function isRegistered(): boolean {
  const provider = trace.getTracerProvider();
  return !(provider instanceof ProxyTracerProvider) || provider.getDelegateTracer(NAME) !== undefined;
}

/** Takes back what an SDK has registered. */
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
