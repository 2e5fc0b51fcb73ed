// The language of the project, checked: words and openings that made readers stop, in comments, titles of tests, strings
// and documents. `node scripts/check-words.mjs [file or folder …]` checks only these.
import { readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

/** A comment or a title names its subject first. */
const OPENING =
  /^(Of|What|Which|Where|Those|One|Ones|Whose|Whom|Whatever|Whoever|Whichever|None|Such|Beside|Besides)\b/;

/** What is not written, with what is. Names of columns, settings and codes stand in backticks or quotes, or as identifiers. */
const PHRASES = [
  [/\bof that one\b/i, 'name it'],
  [/\b(is|are) none\b/i, '"there is no …", "does not count"'],
  [/\bfor so long\b/i, '"for this long"'],
  [/\bsuch as from\b/i, '"for example from"'],
  [/\blooked at again\b/i, '"checked again"'],
  [/\bgives\b/i, '"returns", "names", "has", "its … is"'],
  [/\b(stands?|stood|standing) for\b/i, '"owns", "represents", "means"'],
  [/\b(is|are|was|were) told\b/i, '"is reported", "is notified"'],
  [/(?<!choices )\b(is|are|was|were) dead\b/i, '"is given up"'],
  [/\bin vain\b/i, 'say what fails'],
  [/\bin earnest\b/i, '"against production"'],
  [/\bby (itself|themselves)\b/i, '"automatically", "alone"'],
  [
    /\b(is|are|has|have) (stopped|paused|sent|gone) since\b/i,
    'the perfect tense: "has been … since", "stopped at"',
  ],
  [/\bwhose turn\b/i, '"action:"'],
  [/\b(heirs?|givers?|the night's)\b/i, 'the vocabulary of docs/architecture.md'],
  [/\b\d+ (records?|objects?) dead\b/i, '"given up"'],
  [/\bretirements? of\b/i, '"deactivations of"'],
];

/** A title of a test, in one line with what it belongs to: `it('…')`, `it.each(rows)('…')`, `])('…')`. */
const TITLE = /(?:\b(?:it|test|describe)(?:\.\w+(?:\(.*\))?)*|^\s*[\]}]\))\(\s*(['"`])(.+)\1/;

const FOLDERS = [
  'src',
  'test',
  'bench',
  'scripts',
  'docs',
  'examples',
  'README.md',
  'CONTRIBUTING.md',
  'CHANGELOG.md',
  'VERSIONING.md',
];

/** Every finding in a text, as `line: why`. */
export function findWords(text, isDocument) {
  const findings = [];
  let isFenced = false;
  let isContinued = false;
  for (const [index, line] of text.split('\n').entries()) {
    const report = (why) => findings.push(`${index + 1}: ${why}`);
    if (isDocument && line.trimStart().startsWith('```')) isFenced = !isFenced;
    const comment = isDocument ? undefined : /^\s*(?:\/\/|\/\*\*?|\*(?!\/))\s?(.*)$/.exec(line)?.[1];
    const isFirst = comment !== undefined && !isContinued;
    // A block that opens with `/**` alone begins on its next line.
    isContinued = comment !== undefined && (isContinued || comment !== '') && !/\*\/\s*$/.test(line);
    const title = isDocument ? undefined : TITLE.exec(line)?.[2];
    for (const words of [isFirst ? comment : undefined, title && title[0].toUpperCase() + title.slice(1)]) {
      const [opening] = OPENING.exec(words ?? '') ?? [];
      if (opening) report(`opens with "${opening}": name the subject first`);
    }
    const prose = isDocument
      ? isFenced
        ? ''
        : line
      : [comment ?? '', ...stringsOf(comment === undefined ? line : '')].join(' ');
    for (const [pattern, instead] of PHRASES) {
      const found = pattern.exec(prose.replaceAll(/`[^`]*`/g, '``'));
      if (found) report(`"${found[0]}": write ${instead}`);
    }
  }
  return findings;
}

/** The strings of a line of code, and a comment behind it. */
const stringsOf = (line) =>
  [...line.matchAll(/'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|`((?:[^`\\]|\\.)*)`?|\s\/\/ (.*)$/g)].map(
    ([, single, double, template, comment]) => single ?? double ?? template ?? comment ?? '',
  );

function filesOf(place) {
  if (!statSync(place).isDirectory()) return [place];
  return readdirSync(place, { recursive: true, encoding: 'utf8' })
    .filter((file) => /\.(ts|mjs|js|md|sql)$/.test(file))
    .map((file) => path.join(place, file));
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const places = process.argv.length > 2 ? process.argv.slice(2) : FOLDERS;
  const findings = places
    .flatMap(filesOf)
    .filter((file) => path.basename(file) !== 'check-words.mjs')
    .flatMap((file) =>
      findWords(readFileSync(file, 'utf8'), file.endsWith('.md')).map((finding) => `${file}:${finding}`),
    );
  for (const finding of findings) console.error(finding);
  if (findings.length > 0)
    console.error(`${findings.length} findings. The language is described in CONTRIBUTING.md.`);
  process.exitCode = findings.length > 0 ? 1 : 0;
}
