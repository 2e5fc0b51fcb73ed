// What a verify saw to differ at the service from what was accepted last, and its repair.
import { formatNumber, plural } from '../format.js';
import { html } from '../html.js';
import { DRIFT_MEANINGS } from '../report/verify.js';
import { formatValues } from '../report/values.js';
import { countDrift, isRepaired, listDrift } from '../state/drift/read-drift.js';
import { action, command, link, minute, pathOf, status, table, withQuery } from './parts.js';
import type { Page, Section, View } from './view.js';

const MOST = 100;
const MOST_FIELDS = 5;

export const driftPage: Page = async (sources, { address }) => {
  const { verified } = await sources.now();
  const { counts, listed } = await sources.read(address, async (db) => ({
    counts: await countDrift(db),
    listed: await listDrift(db, MOST),
  }));
  return (view) => ({
    title: 'Drift',
    lead: html`<p>Objects that a verify saw to differ at the service from what it accepted. To look again: ${command('slotsync verify')}</p>`,
    sections: [
      byStream(counts, verified, view),
      objects(
        listed,
        counts.reduce((sum, { count }) => sum + count, 0),
        view,
      ),
    ],
  });
};

function byStream(
  counts: Awaited<ReturnType<typeof countDrift>>,
  verified: readonly {
    stream: string;
    verifiedAt: Date | null;
    objects: number | null;
    repairable: number;
  }[],
  view: View,
): Section {
  const rows = verified.map(({ stream, verifiedAt, objects: compared, repairable }) => {
    const kinds = counts.filter((one) => one.stream === stream);
    return [
      stream,
      verifiedAt ? minute(verifiedAt, view) : 'never verified',
      compared === null ? '–' : compared,
      kinds.length === 0
        ? verifiedAt
          ? 'none'
          : 'not known'
        : kinds.map(({ kind, count }) => `${formatNumber(count)} ${kind.replace('_', ' ')}`).join(', '),
      repairable === 0
        ? ''
        : action(view, {
            href: withQuery('/drift/repair', { stream }),
            label: 'Repair …',
            typed: `slotsync verify ${stream} --repair`,
            about: `${plural(repairable, 'object')} of ${stream}`,
          }),
    ];
  });
  const body =
    rows.length === 0
      ? html`<p>No records yet.</p>`
      : table('Drift by stream', ['stream', 'last verified', '#objects', 'drift', 'repair'], rows);
  return { id: 'streams', title: 'By stream', body };
}

function objects(listed: Awaited<ReturnType<typeof listDrift>>, total: number, view: View): Section {
  const rows = listed.map(({ stream, localKey, externalId, kind, fields, seenAt }) => {
    const differences = Object.entries(fields ?? {});
    return [
      kind === 'extra'
        ? `${stream}: object ${localKey}`
        : link(pathOf('records', stream, localKey), `${stream} ${localKey}`),
      externalId ?? '–',
      html`${status(kind)} ${DRIFT_MEANINGS[kind]}`,
      html`${differences.slice(0, MOST_FIELDS).map(([field, { here, there }]) => html`<div>${field}: ${formatValues(there)} at the service, ${formatValues(here)} expected</div>`)}${differences.length > MOST_FIELDS ? `and ${differences.length - MOST_FIELDS} more fields` : ''}`,
      minute(new Date(seenAt), view),
      isRepaired(kind) ? 'by a repair' : 'by an operator',
    ];
  });
  const more =
    total > listed.length
      ? html`<p>The first ${listed.length} of ${formatNumber(total)}. All of them: ${command('slotsync verify --out drift.csv')}</p>`
      : '';
  const isEmpty = rows.length === 0;
  const body = isEmpty
    ? html``
    : html`${more}${table('Objects that drift', ['record', 'external id', 'how', 'fields', 'seen', 'resolved'], rows)}`;
  return { id: 'objects', title: 'Objects', body, isEmpty };
}
