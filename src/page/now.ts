// The first page: the situation, with a line of the requests of the last hour.
import { describeHour, situationDocument } from '../documents/situation.js';
import { plain } from '../render/plain.js';
import { html } from '../text/html.js';
import { requestLine } from './chart.js';
import { renderDocument } from './render-document.js';
import type { Page } from './view.js';

export const nowPage: Page = async (sources) => {
  const [facts, { minutes, totals: hour }] = [await sources.now(), await sources.hour()];
  return (view) => {
    const { timeZone } = view;
    const { sections, ...page } = renderDocument(situationDocument({ ...facts, hour }, { timeZone }), view);
    // The minute that has just begun would look like one with few requests.
    const line = requestLine(minutes.slice(0, -1), {
      label: plain(describeHour(hour), timeZone),
      allowed: sources.requestsPerSecond * 60,
    });
    return {
      ...page,
      sections: sections.map((section) =>
        section.id === 'requests'
          ? { ...section, body: html`${section.body}<figure>${line}</figure>` }
          : section,
      ),
    };
  };
};
