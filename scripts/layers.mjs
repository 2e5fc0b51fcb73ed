// The layers of src/: which place may import which, and where a package may be used. Imports point down only.
// This is a plugin of oxlint: its rule `layers/imports` reports in editors and in `npm run check`.
import path from 'node:path';

// A place is a file, a folder with everything below it, or `folder/*`: the files directly in it. The most specific
// place counts. Files of one place may import each other. A file outside every place is reported.
const LEAVES = [
  'config/environment.ts',
  'config/settings.ts',
  'config/setting-text.ts',
  'connections',
  'errors',
  'files',
  'process',
  'text',
  'time',
];
const DECLARATIONS = ['streams', ...LEAVES];
const SYSTEMS = ['mirror', 'destination', 'state', ...DECLARATIONS];
/** Places that several use cases need. */
const SHARED = ['sync/identity', 'sync/limits', 'sync/object', 'sync/run'];
const BELOW_A_USE_CASE = [...SHARED, ...SYSTEMS];
const FOLDERS = [
  'sync/plan',
  'sync/apply',
  'sync/detect',
  'sync/reconcile',
  'sync/verify',
  'sync/match',
  'sync/init',
  'sync/operator',
];
const USE_CASES = [...FOLDERS, ...BELOW_A_USE_CASE];
const COMMANDS = ['commands', 'commands/demo.ts', 'commands/sandbox.ts'];
const PROGRAM = [
  ...COMMANDS,
  'app',
  'config/config-file.ts',
  'documents',
  'render',
  'situation',
  'page',
  'alerts',
  'queue',
  ...USE_CASES,
];

const ASSEMBLED = ['config/config-file.ts', 'http', 'page', 'alerts', 'situation', 'queue', ...USE_CASES];

export const MAY_IMPORT = {
  'cli.ts': COMMANDS,
  commands: PROGRAM,
  'commands/demo.ts': ['demo', 'sandbox', ...PROGRAM],
  'commands/sandbox.ts': ['sandbox', 'config/load-file.ts', ...PROGRAM],
  demo: ['sandbox', 'render', ...DECLARATIONS],
  sandbox: LEAVES,
  app: ASSEMBLED,
  documents: ['situation', ...USE_CASES],
  render: ['documents', ...LEAVES],
  situation: USE_CASES,
  page: ['http', 'documents', 'render', 'situation', ...USE_CASES],
  alerts: ['documents', 'render', 'situation', 'config/config-file.ts', ...USE_CASES],
  http: ['documents', 'situation', 'queue', ...USE_CASES],
  queue: USE_CASES,
  ...each(FOLDERS, BELOW_A_USE_CASE),
  'sync/operator': ['config/config-file.ts', 'sync/plan', ...BELOW_A_USE_CASE],
  ...each(SHARED, BELOW_A_USE_CASE),
  mirror: DECLARATIONS,
  destination: ['dialect', ...DECLARATIONS],
  dialect: DECLARATIONS,
  state: DECLARATIONS,
  'config/config-file.ts': ['config/load-file.ts', 'dialect', ...DECLARATIONS],
  'config/load-file.ts': LEAVES,
  'index.ts': ['dialect', ...DECLARATIONS],
  streams: LEAVES,
  ...each(LEAVES, LEAVES),
};

/** The same permission for each place. */
function each(places, allowed) {
  return Object.fromEntries(places.map((place) => [place, allowed]));
}

const ANYWHERE = ['.'];
/** The places that may use a package, or a part of a place. A package that is not listed is reported. */
export const MAY_USE = {
  bullmq: ['queue'],
  pg: ['queue'],
  ioredis: ['connections/redis-connection.ts'],
  postgres: ['connections', 'mirror', 'state', 'destination/quota', 'demo', 'commands/demo.ts'],
  'postgres-array': ['mirror', 'state'],
  'drizzle-orm': ['state'],
  hono: ['http/http-server.ts', 'page/sign-in.ts', 'text/html.ts'],
  '@hono/node-server': ['http/http-server.ts'],
  undici: ['destination/connections.ts'],
  'p-limit': ['commands', 'sync', 'destination', 'process/lifecycle.ts'],
  commander: ['commands'],
  'cron-parser': ['time/cron-schedule.ts'],
  'csv-parse': ['files/csv-file.ts'],
  'csv-stringify': ['files/csv-file.ts'],
  '@inquirer/checkbox': ['commands/init.ts'],
  jiti: ['config/load-file.ts'],
  pino: ['process/logger.ts'],
  'prom-client': ['http/metrics.ts'],
  nodemailer: ['alerts/send-mail.ts'],
  '@opentelemetry/api': ['process/tracing.ts'],
  '@opentelemetry/exporter-trace-otlp-http': ['process/tracing-export.ts'],
  '@opentelemetry/resources': ['process/tracing-export.ts'],
  '@opentelemetry/sdk-trace-node': ['process/tracing-export.ts'],
  'fastest-levenshtein': ['text/nearest-name.ts', 'sync/init'],
  'string-width': ['render/wrap.ts'],
  zod: ANYWHERE,
};

/** The place of a file, by its path within src/; undefined: none. */
export function placeOf(file) {
  const { dir } = path.posix.parse(file);
  const folders = dir.split('/').map((_, index, names) => names.slice(0, index + 1).join('/'));
  return [file, `${dir}/*`, ...folders.reverse()].find((place) => place in MAY_IMPORT);
}

/** Why a file of src/ may not import this, as a sentence; undefined: it may. */
export function forbidden(file, specifier) {
  const place = placeOf(file);
  if (place === undefined) return undefined; // reported once for the file
  if (specifier.startsWith('node:')) return undefined;
  if (!specifier.startsWith('.')) {
    const name = specifier.split('/', specifier.startsWith('@') ? 2 : 1).join('/');
    const places = MAY_USE[name];
    if (places === undefined) return `The package ${name} is not listed in scripts/layers.mjs.`;
    const isAllowed =
      places === ANYWHERE || places.some((each) => file === each || file.startsWith(`${each}/`));
    return isAllowed ? undefined : `Only ${places.join(', ')} may use the package ${name}.`;
  }
  const imported = path.posix.join(path.posix.dirname(file), specifier).replace(/\.js$/, '.ts');
  if (imported.startsWith('..')) return 'Files of src/ import only files of src/.';
  const target = placeOf(imported);
  if (target === undefined) return `${imported} is in no place of scripts/layers.mjs.`;
  if (target === place || MAY_IMPORT[place].includes(target)) return undefined;
  return `${place} must not import ${target}: imports point down only.`;
}

const imports = {
  create(context) {
    const file = path.relative(context.cwd, context.filename).split(path.sep).join('/');
    if (!file.startsWith('src/')) return {};
    const name = file.slice('src/'.length);
    const check = ({ source }) => {
      const message = typeof source?.value === 'string' ? forbidden(name, source.value) : undefined;
      if (message !== undefined) context.report({ node: source, message });
    };
    return {
      Program(node) {
        if (placeOf(name) === undefined)
          context.report({ node, message: `${file} is in no place of scripts/layers.mjs.` });
      },
      ImportDeclaration: check,
      ImportExpression: check,
      ExportAllDeclaration: check,
      ExportNamedDeclaration: check,
      TSImportType: check,
    };
  },
};

/** Functions that are often given a list as their arguments. */
const TAKES_MANY = new Set([
  'push',
  'unshift',
  'splice',
  'concat',
  'max',
  'min',
  'fromCharCode',
  'fromCodePoint',
]);

/** Reports `list.push(...rows)`: each element takes a place on the stack, and some 100 000 of them end it with a RangeError. */
const spreads = {
  create: (context) => ({
    CallExpression({ callee, arguments: given }) {
      if (!TAKES_MANY.has(callee.property?.name)) return;
      const message = 'A long list overflows the stack as arguments: use a loop, reduce or an array literal.';
      for (const node of given) if (node.type === 'SpreadElement') context.report({ node, message });
    },
  }),
};

export default { meta: { name: 'layers' }, rules: { imports, spreads } };
