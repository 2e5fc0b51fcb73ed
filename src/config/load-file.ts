// Loads a file of the operator, with the modules that it consists of: a function of a field may use a constant of its file, or of
// a file that is imported, and its own source text does not change with that constant.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { Jiti } from 'jiti';
import { codeOf, messageOf } from '../errors/errors.js';
import { readTextFile } from '../files/text-file.js';

/** Files whose imports are read; others, such as JSON, import nothing. */
const CODE = /\.[cm]?[jt]sx?$/;
/** How compiled code imports: jiti leaves no other form. What only reads so is no file, and does not count. */
const IMPORT = /\b(?:require|jitiImport|import)\(\s*(?:"([^"\n]+)"|'([^'\n]+)')\s*\)/g;

/** How a text begins that names a file of one's own; escaped, it may begin with anything. Compiling is left out without one. */
const OWN_FILE = /["'](?:\.{0,2}\/|#|file:|\\)/;

/** A file and every module that it imports, directly or not. Not packages, and not what is named by an expression. */
export interface Modules {
  files: readonly string[];
  /** The hash of their places from the file's folder, and of their texts. */
  hash: string;
}

/** The export of a file, and its modules. */
export interface Exported {
  exported: unknown;
  modules: Modules;
}

/** Loads a file of the operator. */
export async function importFile(file: string): Promise<Exported> {
  const text = readTextFile(file);
  if (file.endsWith('.json'))
    return { exported: parseJson(file, text), modules: { files: [file], hash: '' } };
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
  const exported = (await jiti.import<{ default?: unknown }>(file)).default;
  return { exported, modules: readModules(jiti, file) };
}

/** Throws what jiti throws of code that it cannot parse. */
function parseJson(file: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    const at = Number(/ at position (\d+)/.exec(messageOf(error))?.[1] ?? text.length);
    const linesBefore = text.slice(0, at).split('\n');
    const place = `${file}:${linesBefore.length}:${linesBefore.at(-1)?.length}`;
    throw new SyntaxError(`ParseError: ${messageOf(error)}\n ${place}`, { cause: error });
  }
}

/** The form of jiti's errors. Their columns count from 0. */
const PARSE_ERROR = /^ParseError: (.*?)\s*\n\s*(.*):(\d+):(\d+)$/s;

/** The reason and place of a syntax error, and its line. Undefined: another error. */
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

/** A hash of the texts of these files, as they are now. One that cannot be read has none. */
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
    // `#name` is an import of the folder's own package.json; other bare names are packages.
    if (!/^(\.{0,2}\/|#|file:)/.test(specifier)) return [];
    const resolved = jiti.esmResolve(specifier, { parentURL: pathToFileURL(file), try: true });
    if (resolved === undefined || resolved.startsWith('node:')) return [];
    const found = resolved.startsWith('file:') ? fileURLToPath(resolved) : resolved;
    return path.isAbsolute(found) && !found.split(path.sep).includes('node_modules') ? [found] : [];
  });
}

/** A file may await what it needs, such as a secret from elsewhere. */
const LOAD_WITHIN_MS = 30_000;

/**
 * The result of `load`, which may do anything while it loads: if it ended the process, or awaited something that never happens,
 * the command would end silently. Throws when what is loaded ends the process, awaits something that never happens, or leaves an error
 * unhandled. Until it has loaded, `process.exit` throws.
 */
export async function loadAlone<T>(load: () => Promise<T>, withinMs = LOAD_WITHIN_MS): Promise<T> {
  let fail: (reason: unknown) => void = () => undefined;
  const failed = new Promise<never>((_, reject) => (fail = reject));
  failed.catch(() => undefined); // the race below gets the error
  const events = ['uncaughtException', 'unhandledRejection'] as const;
  const { exit } = process;
  process.exit = () => {
    throw new Error('it ends the process with process.exit()');
  };
  for (const event of events) process.on(event, fail);
  const onIdle = () => fail(new Error('it awaits something that never happens'));
  process.once('beforeExit', onIdle);
  const timer = setTimeout(() => {
    fail(new Error(`it is not loaded after ${withinMs / 1000} s: does it await something?`));
  }, withinMs).unref();
  try {
    const loaded = await Promise.race([load(), failed]);
    // Unhandled errors of the file are reported after the file has ended.
    await Promise.race([new Promise((resolve) => setImmediate(resolve)), failed]);
    return loaded;
  } finally {
    clearTimeout(timer);
    process.exit = exit;
    process.off('beforeExit', onIdle);
    for (const event of events) process.off(event, fail);
  }
}
