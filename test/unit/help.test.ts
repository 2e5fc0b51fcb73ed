// Help is read on a terminal of 80 columns: a longer line is broken in the middle of a word.
import { Command } from 'commander';
import { expect, it } from 'vitest';
import { addCommands } from '../../src/commands/command-table.js';

const program = new Command('slotsync');
addCommands(program);

it.each(program.commands.map((command) => [command.name(), command] as const))(
  'the help of slotsync %s fits into 80 columns',
  (_, command) => {
    let text = '';
    command.configureOutput({ writeOut: (more) => (text += more), getOutHelpWidth: () => 80 }).outputHelp();
    expect(text).toContain('Usage: slotsync ');
    expect(text.split('\n').filter((line) => line.length > 80)).toEqual([]);
  },
);
