// The report as HTML: a document that stands alone, to be mailed, kept or printed on one page.
import { formatNumber } from '../format.js';
import { html, type Html } from '../html.js';
import type { MorningReport, ReportPoint, ReportSection } from './morning-report.js';

/** A whole document: no script, no asset from elsewhere. */
export function reportToHtml(report: MorningReport): string {
  return String(html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>slotsync: ${report.title}</title>
<style>
:root { color-scheme: light dark; --line: #c8c8c8; --soft: #f3f3f3; }
@media (prefers-color-scheme: dark) { :root { --line: #4a4a4a; --soft: #262626; } }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 52rem; margin: 1.5rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5em; margin: 0 0 .3em; }
h2 { font-size: 1.1em; margin: 1.1em 0 .3em; border-bottom: 1px solid var(--line); }
p, ul { margin: .3em 0; }
ul { padding-left: 1.2em; }
table { border-collapse: collapse; margin: .4em 0; }
th, td { text-align: left; padding: .1em .9em .1em 0; vertical-align: top; }
th { font-weight: 600; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
code { background: var(--soft); padding: 0 .3em; border-radius: 3px; }
@page { size: A4; margin: 12mm; }
@media print { :root { color-scheme: light; } body { font-size: 10px; margin: 0; max-width: none; padding: 0; } h2 { break-after: avoid; } tr, li { break-inside: avoid; } }
</style>
</head>
<body>
<main>
<h1>${report.title}</h1>
${report.about.map((line) => html`<p>${line}</p>\n`)}${report.sections.map(sectionToHtml)}
</main>
</body>
</html>
`);
}

function sectionToHtml({ title, paragraphs, points, table }: ReportSection): Html {
  const isNumeric = table?.headings.map((_, at) => table.rows.every((row) => typeof row[at] === 'number'));
  const kind = (at: number) => isNumeric?.[at] && html` class="number"`;
  return html`<section>
<h2>${title}</h2>
${paragraphs.map((line) => html`<p>${line}</p>\n`)}${points.length > 0 && html`<ul>\n${points.map(pointToHtml)}</ul>\n`}${
    table &&
    html`<table>
<thead><tr>${table.headings.map((heading, at) => html`<th scope="col"${kind(at)}>${heading}</th>`)}</tr></thead>
<tbody>
${table.rows.map(
  (row) =>
    html`<tr>${row.map((cell, at) => html`<td${kind(at)}>${typeof cell === 'number' ? formatNumber(cell) : cell}</td>`)}</tr>\n`,
)}</tbody>
</table>
`
  }</section>
`;
}

function pointToHtml({ text, details = [], commands = [] }: ReportPoint): Html {
  return html`<li>${text}${commands.map((command) => html` <code>${command}</code>`)}${
    details.length > 0 && html`\n<ul>${details.map((line) => html`<li>${line}</li>`)}</ul>`
  }</li>
`;
}
