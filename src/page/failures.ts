// Why records are not in sync, by root cause, and the first records one by one.
import { withQuery } from '../documents/document.js';
import { failuresDocument } from '../documents/failures.js';
import { listFailuresInChains } from '../situation/failures.js';
import { readFailuresFacts } from '../situation/failure-facts.js';
import { listRecordedStreams } from '../state/records/read/count-records.js';
import { html } from '../text/html.js';
import { renderDocument } from './render-document.js';
import type { Page } from './view.js';

const MOST_CAUSES = 50;
const MOST_RECORDS = 50;

export const failuresPage: Page = async (sources, { query, address }) => {
  const stream = query.get('stream') || undefined;
  const { facts, records, streams } = await sources.read(address, async (db) => {
    const configured = await sources.configured();
    return {
      facts: await readFailuresFacts(db, { stream }, { configured }),
      records: await listFailuresInChains(db, { stream, limit: MOST_RECORDS }, configured),
      streams: await listRecordedStreams(db),
    };
  });
  return (view) => {
    const document = failuresDocument(facts, { most: MOST_CAUSES, now: view.now, records });
    const filter = html`<nav aria-label="Streams" class="filter"><ul><li><a href="/failures"${stream === undefined && html` aria-current="true"`}>all</a></li>${streams.map((name) => html`<li><a href="${withQuery('/failures', { stream: name })}"${name === stream && html` aria-current="true"`}>${name}</a></li>`)}</ul></nav>`;
    return renderDocument(document, view, filter);
  };
};
