// The sandbox in a process of its own, so that its work is not counted as ours. Ends with its standard input.
import { startSandbox } from '../src/sandbox/sandbox.js';
import type { ServiceOptions } from './service.js';
import { fieldsOfThing } from './things.js';

const { reservations, things, ...options } = JSON.parse(process.argv[2] ?? '{}') as ServiceOptions;
const sandbox = await startSandbox(options);
if (reservations) {
  const { count, from, to } = reservations;
  for (let id = 0; id < count; id++) {
    const begin = Math.floor(from + (id * (to - from)) / count);
    const objects = [{ typeId: 'room', objectId: `room_${id % 100}` }];
    sandbox.addReservation({ extId: `res_${id}`, begin, end: begin + 3600, objects });
  }
}
if (things) {
  for (let id = 1; id <= things.count; id++) {
    const extId = id <= things.named ? `thing_${id}` : null;
    sandbox.addObject({ extId, typeId: 'thing', fields: fieldsOfThing(id) });
  }
}
process.stdout.write(`${sandbox.url}\n`);
process.stdin.resume().on('end', () => void sandbox.close());
