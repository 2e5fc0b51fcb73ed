// Installations that a test file opens and closes, with short ways to run a command and to expect what it prints.
import { afterAll, afterEach, beforeAll, beforeEach, expect, type TestContext } from 'vitest';
import type { Env, Finished } from './program.js';
import { rehearse, type Rehearsal } from './rehearsal.js';

/** A command with its arguments: split at spaces, or a list if an argument contains a space. */
export type CommandLine = string | readonly string[];
type Text = string | RegExp;

export type Installation = Rehearsal & ReturnType<typeof commandsOf>;
type Options = Parameters<typeof rehearse>[0];

/** Opens one installation for the tests of a file or a `describe`. It is there from the first test and later hooks on. */
export const rehearseOnce = (options?: Options): Installation => keep(beforeAll, afterAll, options);

/** Opens an installation for each test. */
export const rehearseEach = (options?: Options): Installation => keep(beforeEach, afterEach, options);

/** Opens an installation for one of several tests that run at the same time. */
export async function rehearseIn(
  test: Pick<TestContext, 'onTestFinished'>,
  options?: Options,
): Promise<Installation> {
  const world = await rehearse(options);
  test.onTestFinished(() => world.close());
  return Object.assign(world, commandsOf(world));
}

/** The commands of an installation, carried out with these settings. */
export const commandsOf = (world: Rehearsal, changes: Env = {}) => {
  const run = (line: CommandLine): Promise<Finished> =>
    world.run(typeof line === 'string' ? line.split(' ') : line, changes);

  /** Expects this exit code, and that standard output has each of these texts. Returns standard output. */
  async function ends(line: CommandLine, code: number, ...texts: Text[]): Promise<string> {
    const finished = await run(line);
    expect({ line, ...finished }).toMatchObject({ line, code });
    expectTexts(finished.stdout, texts, line);
    return finished.stdout;
  }
  return {
    ends,
    /** Expects success. Returns standard output. */
    read: (line: CommandLine): Promise<string> => ends(line, 0),
    /** Expects exit code 2, nothing on standard output, and each of these texts on standard error. */
    async refuses(line: CommandLine, ...texts: Text[]): Promise<void> {
      const { code, stdout, stderr } = await run(line);
      expect({ line, code, stdout }).toEqual({ line, code: 2, stdout: '' });
      expectTexts(stderr, texts, line);
    },
    /** Returns the JSON that a command prints, whatever its exit code is. */
    json: async <T = Record<string, unknown>>(line: CommandLine): Promise<T> =>
      JSON.parse((await run(line)).stdout) as T,
  };
};

function expectTexts(printed: string, texts: readonly Text[], line: CommandLine): void {
  for (const text of texts)
    if (typeof text === 'string') expect(printed, String(line)).toContain(text);
    else expect(printed, String(line)).toMatch(text);
}

type Hook = (act: () => Promise<void>) => void;

function keep(before: Hook, after: Hook, options: Options): Installation {
  const world = {} as Installation;
  before(async () => {
    const opened = await rehearse(options);
    Object.assign(world, opened, commandsOf(opened));
  });
  after(() => world.close());
  return world;
}
