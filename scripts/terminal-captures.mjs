// Makes the captures of docs/terminal on a bad morning (bad-morning.mjs), at 80 columns and at 200, in terminals of tmux, and
// renews the blocks of docs/terminal.md from them. Made again with: npm run build && node scripts/terminal-captures.mjs
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import stringWidth from 'string-width';
import { playBadMorning } from './bad-morning.mjs';

if (spawnSync('tmux', ['-V']).error) {
  console.error('tmux is not on PATH, and the captures are made with it: install the package tmux.');
  process.exit(1);
}

const docs = fileURLToPath(new URL('../docs/', import.meta.url));
const WIDTHS = [80, 200];
const PROMPT = '$ ';
/** A command that ends is captured on a screen that holds all it prints. */
const ROWS = 100;
const WAIT_MS = 120_000;

const temporary = mkdtempSync(path.join(tmpdir(), 'slotsync-captures-'));
const closers = [() => rmSync(temporary, { recursive: true })];
try {
  // The port of `slotsync sandbox`: the address is the same in every capture.
  await playBadMorning({
    closers,
    sandboxPort: 8377,
    begin: async (morning) => {
      closers.push(startTmux(morning));
      await captureBoth('plan');
    },
  });
  for (const command of ['status', 'failures', 'runs', 'explain rooms K101']) await captureBoth(command);
  // A document, as wide as a mail, whatever the terminal.
  await capture('slotsync report', { name: 'report', columns: 80, rows: 200 });
  const watch = { name: 'watch', when: /read every 2 s/, keys: 'q' };
  await capture('slotsync status --watch', { ...watch, columns: 80, rows: 24 });
  await capture('slotsync status --watch', { ...watch, columns: 200, rows: 50 });
  // Ctrl-C leaves the run where it is, and the same command continues it.
  const progress = { name: 'progress', when: / left  \d\d %  .*quota .*run /, keys: 'C-c', rows: 24 };
  for (const columns of WIDTHS)
    await capture('API_REQUESTS_PER_SECOND=1 slotsync backfill --force', { ...progress, columns });
} finally {
  for (const close of closers.reverse()) await close();
}
renewPage();
process.exit();

/** A server of its own, so that no configuration and no session of the user takes part. Returns what ends it. */
function startTmux({ env, cli }) {
  const quoted = Object.entries(env).map(([name, value]) => `export ${name}='${value}'`);
  const program = `slotsync() { '${process.execPath}' '${cli}' "$@"; }`;
  writeFileSync(path.join(temporary, 'bashrc'), [...quoted, program, `PS1='${PROMPT}'`, ''].join('\n'));
  tmux('new-session', '-d', '-s', 'first', 'cat');
  return () => tmux('kill-server');
}

function tmux(...args) {
  return execFileSync('tmux', ['-S', path.join(temporary, 'tmux'), '-f', '/dev/null', ...args], {
    encoding: 'utf8',
    env: { PATH: process.env['PATH'], HOME: temporary, LANG: 'C.UTF-8', TERM: 'xterm-256color' },
  });
}

async function captureBoth(command) {
  const [name] = command.split(' ');
  for (const columns of WIDTHS) await capture(`slotsync ${command}`, { name, columns, rows: ROWS });
}

/** Types a command and keeps what the screen shows: after its end, or `when` it shows something; then `keys` end it. */
async function capture(command, { name, columns, rows, when, keys }) {
  const size = ['-x', String(columns), '-y', String(rows)];
  tmux('new-session', '-d', '-s', name, ...size, `bash --noprofile --rcfile '${temporary}/bashrc' -i`);
  await showsPrompt(name, 1);
  tmux('send-keys', '-t', name, '-l', command);
  tmux('send-keys', '-t', name, 'Enter');
  await (when ? shows(name, (screen) => when.test(screen)) : showsPrompt(name, 2));
  const screen = read(name);
  if (keys) {
    tmux('send-keys', '-t', name, keys);
    await showsPrompt(name, 2);
  }
  tmux('kill-session', '-t', name);

  const shown = screen.replace(new RegExp(`\n\\${PROMPT.trim()}$`), '');
  for (const line of shown.split('\n'))
    if (stringWidth(line) > columns) throw new Error(`wider than ${columns} columns: ${line}`);
  writeFileSync(path.join(docs, 'terminal', `${name}-${columns}.txt`), `${shown}\n`);
}

/** What the screen shows, without spaces at the ends. A line that the terminal wrapped is whole again. */
function read(name) {
  const screen = tmux('capture-pane', '-p', '-J', '-t', name);
  return screen.replaceAll(/ +$/gm, '').trimEnd();
}

/** The prompt is the last line, and as many are shown, or the screen was cleared meanwhile. */
function showsPrompt(name, count) {
  return shows(name, (screen) => {
    const prompts = screen.split('\n').filter((line) => `${line} `.startsWith(PROMPT));
    return screen.split('\n').at(-1) === PROMPT.trim() && prompts.length >= count;
  });
}

async function shows(name, isShown) {
  const end = performance.now() + WAIT_MS;
  while (!isShown(read(name))) {
    if (performance.now() > end) throw new Error(`${name} did not come so far:\n${read(name)}`);
    await pause(50);
  }
}

/** The block after `<!-- status-80.txt, 20 lines -->` becomes the first 20 lines of that file; without a number, all. */
function renewPage() {
  const page = path.join(docs, 'terminal.md');
  const text = readFileSync(page, 'utf8');
  const block = /(<!-- ([\w-]+\.txt)(?:, (\d+) lines)? -->\n\n```\n)[^]*?(?=^```$)/gm;
  writeFileSync(
    page,
    text.replaceAll(block, (_, head, file, count) => {
      const lines = readFileSync(path.join(docs, 'terminal', file), 'utf8')
        .trimEnd()
        .split('\n');
      const shown = lines.slice(0, count === undefined ? lines.length : Number(count));
      return `${head}${[...shown, ...(shown.length < lines.length ? ['…'] : [])].join('\n')}\n`;
    }),
  );
}
