// The loop that anybody would write to see what is at the service: a find of a hundred external ids at a time.
import type { Cell } from '../src/render/table.js';
import { authenticate, type Service } from './service.js';
import { PAGE } from './things.js';

const IDS_AT_ONCE = 100;
/** The loop is measured up to so many objects; beyond it takes many minutes. */
const MOST_IN_LOOP = 100_000;

/** The row of the loop in the tables of `match` and `verify`; no row for more objects than the loop is measured with. */
export async function measureLoop(service: Service, count: number): Promise<Cell[][]> {
  if (count > MOST_IN_LOOP) return [];
  const before = await service.requests();
  const { seconds, found } = await findInLoop(service.url, count);
  const requests = (await service.requests()) - before;
  return [
    [count, 'loop: find 100 ids', requests, count / PAGE, seconds.toFixed(1), '', `${found} found by id`],
  ];
}

/** Asks for things 1 to `count`, one request after the other and without a quota: latency alone keeps it below 20 a second. */
async function findInLoop(url: string, count: number) {
  const startedAt = performance.now();
  const token = await authenticate(url);
  let found = 0;
  for (let id = 1; id <= count; id += IDS_AT_ONCE) {
    const extIds = Array.from({ length: Math.min(IDS_AT_ONCE, count - id + 1) }, (_, i) => `thing_${id + i}`);
    const answer = await fetch(`${url}/v1/objects/find`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ idFormat: 'EXTERNAL', extIds, limit: PAGE }),
    });
    if (!answer.ok) throw new Error(`the service answered ${answer.status}`);
    found += ((await answer.json()) as { results: unknown[] }).results.length;
  }
  return { seconds: (performance.now() - startedAt) / 1000, found };
}
