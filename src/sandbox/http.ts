// JSON in and out of a plain node:http exchange.
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Refusal } from './refusal.js';

export interface SandboxAnswer {
  status: number;
  body?: unknown;
  headers?: Record<string, string> | undefined;
}

/** A 415 when the body is not announced as JSON. */
export function requireJson(request: IncomingMessage): void {
  if (!/^application\/json\b/i.test(request.headers['content-type'] ?? ''))
    throw new Refusal(415, 'content-type application/json expected');
}

/** The text as JSON; a 400 when it is none. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Refusal(400, 'the body is not JSON');
  }
}

/** One part of a path, percent-decoded. */
export function decodeSegment(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    throw new Refusal(400, 'the path is not well formed');
  }
}

/** Sends the answer; `broken` stops in the middle of the document, but ends the message properly. */
export function send(
  response: ServerResponse,
  answer: SandboxAnswer,
  options: { broken?: boolean } = {},
): void {
  const text = answer.body === undefined ? '' : JSON.stringify(answer.body);
  const sent = options.broken === true ? text.slice(0, Math.max(1, Math.floor(text.length / 2))) : text;
  response.writeHead(answer.status, {
    ...(text === '' ? {} : { 'content-type': 'application/json' }),
    'content-length': Buffer.byteLength(sent),
    ...answer.headers,
  });
  response.end(sent);
}

/** A refusal as the answer it becomes; anything else thrown is a defect of the sandbox and becomes a 500. */
export function answerTo(error: unknown): SandboxAnswer {
  if (error instanceof Refusal)
    return {
      status: error.status,
      headers: error.headers,
      body: { status: error.status, message: error.message },
    };
  const message = error instanceof Error ? error.message : String(error);
  return { status: 500, body: { status: 500, message: `sandbox defect: ${message}` } };
}
