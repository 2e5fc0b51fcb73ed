#!/usr/bin/env node
// Checks the version of Node before it loads modules that an old Node cannot load, to print a line, not a stack trace.
const OLDEST = '20.18.1';
const { node } = process.versions;
/** Pads numbers, so that versions compare as text. A collator would take longer to load than the rest of this file. */
const comparable = (version: string) => version.replaceAll(/\d+/g, (digits) => digits.padStart(4, '0'));

if (comparable(node) < comparable(OLDEST)) {
  process.stderr.write(`slotsync: Node ${node} is too old: ${OLDEST} or later is needed.\n`);
  process.exitCode = 2;
} else {
  const { runProgram } = await import('./commands/program.js');
  await runProgram(process.argv);
}
