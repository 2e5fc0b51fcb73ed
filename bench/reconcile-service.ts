// The service of the reconcile benchmark, in a process of its own, so that its work is not counted as ours. Prints its
// address when it holds `count` reservations, one an hour and room.
import { startSandbox } from '../src/sandbox/sandbox.js';

const [count = '0', from = '0', to = '0'] = process.argv.slice(2);
const sandbox = await startSandbox({ rate: 0, schema: { types: [{ extId: 'room' }], fields: [] } });
const step = (Number(to) - Number(from)) / Number(count);
for (let id = 0; id < Number(count); id++) {
  const begin = Math.floor(Number(from) + id * step);
  sandbox.addReservation({
    extId: `res_${id}`,
    begin,
    end: begin + 3600,
    objects: [{ typeId: 'room', objectId: `room_${id % 100}` }],
  });
}
process.stdout.write(`${sandbox.url}\n`);
process.stdin.resume().on('end', () => void sandbox.close());
