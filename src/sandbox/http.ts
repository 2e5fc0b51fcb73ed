// JSON in and out of a plain node:http exchange. A request is refused by throwing a `Refusal` where the reason is known; it
// becomes an answer in one place.
import { STATUS_CODES, type ServerResponse } from 'node:http';

export interface SandboxAnswer {
  status: number;
  body?: unknown;
  headers?: Record<string, string> | undefined;
  /** Sent as it is instead of a body. */
  html?: string;
  /** Sends half of the document, as if it were whole. */
  isBroken?: boolean;
}

/** A request that is refused as a whole. */
export class Refusal extends Error {
  override readonly name = 'Refusal';
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** The answer for what was thrown: anything but a `Refusal` is a defect of the sandbox. */
export function errorAnswer(error: unknown): SandboxAnswer {
  const { status, message } =
    error instanceof Refusal ? error : new Refusal(500, `sandbox defect: ${String(error)}`);
  return { status, body: { status, message } };
}

/** The page with which a gateway answers in the place of the service. */
export function htmlAnswer(status: number): SandboxAnswer {
  const title = `${status} ${STATUS_CODES[status] ?? ''}`.trim();
  const html = `<!DOCTYPE html>\n<html><head><title>${title}</title></head><body><h1>${title}</h1></body></html>\n`;
  return { status, html };
}

/** The text as JSON, undefined when it is empty; a 400 when it is no JSON. */
export function parseJson(text: string): unknown {
  try {
    return text === '' ? undefined : JSON.parse(text);
  } catch {
    throw new Refusal(400, 'the body is not JSON');
  }
}

export function send(
  response: ServerResponse,
  { status, body, html, headers, isBroken }: SandboxAnswer,
): void {
  const whole = html ?? (body === undefined ? '' : JSON.stringify(body));
  const contentType = html === undefined ? 'application/json' : 'text/html; charset=utf-8';
  const text = isBroken ? whole.slice(0, Math.max(1, Math.floor(whole.length / 2))) : whole;
  response.writeHead(status, {
    ...(text === '' ? {} : { 'content-type': contentType }),
    'content-length': Buffer.byteLength(text),
    ...headers,
  });
  response.end(text);
}
