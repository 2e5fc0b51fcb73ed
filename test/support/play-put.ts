// A PUT without a service and a quota: what its sender decides with the slot in hand goes to `send`.
import type { Context } from '../../src/destination/client.js';
import type { Destination, PutObject, PutResult } from '../../src/destination/destination.js';

type Put = ReturnType<Destination['openPut']>;

/** `send` returns undefined when it is to be sent again. */
export function playPuts(
  send: (
    objects: readonly PutObject[],
    context: Context & { sharedBy: Parameters<Put['send']>[1] },
  ) => Promise<Map<string, PutResult> | undefined>,
  takeSlot: (context: Context) => Promise<void> = async () => undefined,
): Pick<Destination, 'openPut'> {
  return {
    openPut(context) {
      let hasSlot = false;
      return {
        async takeSlot() {
          await takeSlot(context);
          hasSlot = true;
        },
        hasSlot: () => hasSlot,
        send(objects, sharedBy) {
          hasSlot = false;
          return send(objects, { ...context, sharedBy });
        },
        end: () => undefined,
      };
    },
  };
}
