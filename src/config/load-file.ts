// Loads a file of the operator and finds the modules that it imports. A field's function may use a constant of its file
// or of an imported file. The function's source text does not change with the constant, so the texts of all modules are
// hashed.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { Jiti } from 'jiti';
import { codeOf, messageOf } from '../errors/errors.js';
import { readTextFile } from '../files/text-file.js';

/** Files whose imports are read. Other files, such as JSON, import nothing. */
const CODE = /\.[cm]?[jt]sx?$/;
/** Matches imports in code that jiti has compiled: jiti leaves no other form. A match that is no file is ignored. */
const IMPORT = /\b(?:require|jitiImport|import)\(\s*(?:"([^"\n]+)"|'([^'\n]+)')\s*\)/g;

/** Matches code that may import a file of the operator. A file without a match is not compiled. */
const OWN_FILE = /["'](?:\.{0,2}\/|#|file:|\\)/;

/** A file and all modules that it imports, directly or not. Packages and computed names are left out. */
export interface Modules {
  files: readonly string[];
  /** Hash of the modules' texts and of their paths from the file's folder. */
  hash: string;
}

export interface Exported {
  exported: unknown;
  modules: Modules;
}

export async function importFile(file: string): Promise<Exported> {
  const text = readTextFile(file);
  if (file.endsWith('.json'))
    return { exported: JSON.parse(text) as unknown, modules: { files: [file], hash: '' } };
  const { createJiti } = await import('jiti');
  const self = import.meta.url.endsWith('.ts') ? '../index.ts' : '../index.js';
  const alias = { slotsync: fileURLToPath(new URL(self, import.meta.url)) };
  // A cache on disk would be in the temporary folder, where other users of the machine could leave code to be run.
  const jiti = createJiti(import.meta.url, {
    alias,
    fsCache: false,
    moduleCache: false,
    interopDefault: false,
  });
  // Otherwise such a file would end every command with exit code 0, and a night that sent nothing would count as done.
  const { exit } = process;
  process.exit = () => {
    throw new Error('it ends the process with process.exit()');
  };
  try {
    const exported = (await jiti.import<{ default?: unknown }>(file)).default;
    return { exported, modules: readModules(jiti, file) };
  } finally {
    process.exit = exit;
  }
}

/** Form of jiti's errors. Their columns count from 0. */
const PARSE_ERROR = /^ParseError: (.*?)\s*\n\s*(.*):(\d+):(\d+)$/s;

/** Returns the reason and place of a syntax error, and its line. Undefined if the error is another error. */
export function findSyntaxError(error: unknown): { message: string; line: string } | undefined {
  const [, reason, file = '', line = '', column] = PARSE_ERROR.exec(messageOf(error)) ?? [];
  if (reason === undefined) return undefined;
  const shown = readTextFile(file).split('\n')[Number(line) - 1] ?? '';
  const place = `${path.relative(process.cwd(), file)}:${line}:${Number(column) + 1}`;
  return { message: `${reason}, at ${place}`, line: `line ${line}: ${shown.trim()}` };
}

function readModules(jiti: Jiti, file: string): Modules {
  const texts = new Map<string, string>();
  const open = [file];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    if (texts.has(next)) continue;
    const text = readFileSync(next, 'utf8');
    texts.set(next, text);
    const isRead = CODE.test(next) && OWN_FILE.test(text);
    for (const imported of isRead ? findImports(jiti, next, text) : []) open.push(imported);
  }
  const folder = path.dirname(file);
  const modules = [...texts]
    .map(([name, text]) => [path.relative(folder, name).split(path.sep).join('/'), text] as const)
    .toSorted(([a], [b]) => (a < b ? -1 : 1));
  const hash = createHash('sha256').update(JSON.stringify(modules)).digest('base64url');
  return { files: [...texts.keys()], hash };
}

/** Returns a hash of the present texts of these files. A file that cannot be read counts with its error code. */
export async function hashTexts(files: readonly string[]): Promise<string> {
  const texts = files.map((file) => readFile(file, 'utf8').catch(codeOf));
  return createHash('sha256')
    .update(JSON.stringify(await Promise.all(texts)))
    .digest('base64url');
}

function findImports(jiti: Jiti, file: string, source: string): string[] {
  const compiled = jiti.transform({ filename: file, source, ts: /\.[cm]?tsx?$/.test(file), async: false });
  return [...compiled.matchAll(IMPORT)].flatMap(([, double, single]) => {
    const specifier = double ?? single ?? '';
    // `#name` is an import of the folder's own package.json. Other bare names are packages.
    if (!/^(\.{0,2}\/|#|file:)/.test(specifier)) return [];
    const resolved = jiti.esmResolve(specifier, { parentURL: pathToFileURL(file), try: true });
    if (resolved === undefined || resolved.startsWith('node:')) return [];
    const found = resolved.startsWith('file:') ? fileURLToPath(resolved) : resolved;
    return path.isAbsolute(found) && !found.split(path.sep).includes('node_modules') ? [found] : [];
  });
}
