// The loop one would write to see what stands at the service: a find of a hundred external ids at a time.
const IDS_AT_ONCE = 100;
const PAGE = 1000;

/** Asks for things 1 to `count`, one request after the other and without a quota: latency alone keeps it below 20 a second. */
export async function findInLoop(url: string, count: number) {
  const startedAt = performance.now();
  const authenticated = await fetch(`${url}/v1/organizations/demo/api-keys/authenticate`, {
    method: 'POST',
    headers: { authorization: 'Api-Key sandbox-key', 'x-region': 'EU_EES' },
  });
  const { token } = (await authenticated.json()) as { token: string };
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
