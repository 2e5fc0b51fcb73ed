// Loads a file of the operator that may do anything while it is loaded. If it ended the process, or awaited something that
// never happens, the command would end silently.

/** A file may await what it needs, such as a secret from elsewhere. */
const LOAD_WITHIN_MS = 30_000;

/**
 * The result of `load`. Throws when what is loaded ends the process, awaits something that never happens, or leaves an error
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
