#!/usr/bin/env node
// Before anything is loaded that an older Node cannot load: a line instead of a stack trace.
const OLDEST = '20.18.1';
const { node } = process.versions;
/** In the order of text; a collator would take longer to load than the rest of this file. */
const comparable = (version: string) => version.replaceAll(/\d+/g, (digits) => digits.padStart(4, '0'));

if (comparable(node) < comparable(OLDEST)) {
  process.stderr.write(`slotsync: Node ${node} is too old: ${OLDEST} or later is needed.\n`);
  process.exitCode = 2;
} else {
  const { runProgram } = await import('./commands/program.js');
  await runProgram(process.argv);
}
