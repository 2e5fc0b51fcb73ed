// The sandbox with the scheduler at its socket: a request waits before it is processed, and its answer before it is
// delivered. The first part of a path names the actor.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text as readText } from 'node:stream/consumers';
import { errorAnswer, parseJson, send, type SandboxAnswer } from '../../src/sandbox/http.js';
import type { SandboxSchema } from '../../src/sandbox/schema.js';
import { createService } from '../../src/sandbox/service.js';
import type { Actor, PendingRequest } from './actor.js';

/** An object as it was sent. */
export interface SentObject {
  extId: string;
  active?: boolean;
  fields?: readonly { fieldId: string; values: readonly string[] }[];
}

export interface Observer {
  /** The service has answered with these objects, and no client has them yet. */
  found?(actor: Actor, extIds: readonly string[]): void;
  /** A write has arrived at the service, and is neither processed nor answered yet. */
  arrived?(actor: Actor, objects: readonly SentObject[]): void;
  processed?(actor: Actor, objects: readonly SentObject[]): void;
  /** The client has the answer, or will never have it. */
  answered?(actor: Actor, objects: readonly SentObject[]): void;
}

/** Requests that are steps. Requests for names and for a token are no steps, because they commute with every step. */
const IS_STEP = /\/(objects|objects\/find|reservations\/find)$/;

/** Listens until it is closed. `actors` are those of the schedule that is being played, by name. */
export async function startSteppedService(schema: SandboxSchema) {
  const closing = new AbortController();
  const service = createService({ rate: 0, schema }, closing.signal);
  let actors: ReadonlyMap<string, Actor> = new Map();
  let observer: Observer = {};

  const server = createServer({ keepAliveTimeout: 60_000, noDelay: true }, (request, response) => {
    void (async () => {
      const text = await readText(request);
      const [, name = '', path = ''] = /^(?:\/([A-Z]))?(\/v1\/.*)$/.exec(request.url ?? '') ?? [];
      const method = request.method ?? 'GET';
      const received = {
        method,
        path,
        query: new URLSearchParams(),
        headers: request.headers,
        json: () => parseJson(text),
      };
      const actor = actors.get(name);
      if (!actor || !IS_STEP.test(path)) {
        const answer = await service.process(received);
        if (answer) send(response, answer);
        return;
      }
      const seen = observer;
      const isWrite = method === 'PUT';
      const objects = isWrite ? (parseJson(text) as { objects: SentObject[] }).objects : [];
      let answer: SandboxAnswer | undefined;
      let isLost = false;
      const process = async () => {
        answer = await service.process(received);
        if (isWrite) seen.processed?.(actor, objects);
        else seen.found?.(actor, foundIn(answer));
      };
      const lose = () => {
        isLost = true;
        if (isWrite) seen.answered?.(actor, objects);
        actor.drop();
        request.socket.resetAndDestroy();
      };
      const pending = (place: PendingRequest['place']): PendingRequest => ({ place, isWrite, lose, process });
      const about = `${method} ${path.replace('/v1/', '')}${isWrite ? ` ${objects.map(describe).join()}` : ''}`;
      if (isWrite) seen.arrived?.(actor, objects);
      await actor.step({ label: `${about} is processed`, request: pending('request') }, process);
      if (isLost) return;
      await actor.step({ label: `${about} is answered`, request: pending('answer') }, () => {
        if (isWrite) seen.answered?.(actor, objects);
        if (answer) send(response, answer);
      });
    })().catch((error: unknown) => {
      if (!response.destroyed) send(response, errorAnswer(error));
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');

  return {
    ...service.controls,
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    /** Assigns the following requests to these actors. */
    attend(next: readonly Actor[], nextObserver: Observer): void {
      actors = new Map(next.map((actor) => [actor.name, actor]));
      observer = nextObserver;
    },
    close: () =>
      new Promise<void>((resolve) => {
        closing.abort();
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/** External ids in an answer to `/objects/find`. */
const foundIn = (answer: SandboxAnswer | undefined): string[] =>
  [...JSON.stringify(answer?.body ?? null).matchAll(/"extId":"([^"]+)"/g)].map(([, extId = '']) => extId);

const describe = ({ extId, active = true }: SentObject) => (active ? extId : `${extId} inactive`);
