// The sandbox in a process of its own, so that its work is not counted as ours. Ends with its standard input.
import { startSandbox } from '../src/sandbox/sandbox.js';
import type { ServiceOptions } from './service.js';

const { reservations, ...options } = JSON.parse(process.argv[2] ?? '{}') as ServiceOptions;
const sandbox = await startSandbox(options);
if (reservations) {
  const { count, from, to } = reservations;
  for (let id = 0; id < count; id++) {
    const begin = Math.floor(from + (id * (to - from)) / count);
    const objects = [{ typeId: 'room', objectId: `room_${id % 100}` }];
    sandbox.addReservation({ extId: `res_${id}`, begin, end: begin + 3600, objects });
  }
}
process.stdout.write(`${sandbox.url}\n`);
process.stdin.resume().on('end', () => void sandbox.close());
