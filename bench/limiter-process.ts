// A process of several that share a quota: opens a limiter, and sends all it may from the first message on.
import { Pool } from 'undici';
import { LIMITERS, type LimiterOptions } from './limiters.js';

const [limiter = '', serviceUrl = ''] = process.argv.slice(2);
const options = process.env['LIMITER_OPTIONS'] ?? '{}';
const pool = new Pool(serviceUrl, { connections: 64 });
const begin = await LIMITERS[limiter]?.(JSON.parse(options) as LimiterOptions, async () => {
  const { body } = await pool.request({ method: 'GET', path: '/' });
  await body.dump();
});
process.once('message', () => begin?.());
process.once('disconnect', () => process.exit(0));
process.send?.('ready');
