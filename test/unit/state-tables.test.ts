// docs/state-tables.md describes every table and column of the state, and no other.
import { is } from 'drizzle-orm';
import { getTableConfig, PgTable } from 'drizzle-orm/pg-core';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import * as schema from '../../src/state/schema.js';

const page = readFileSync(new URL('../../docs/state-tables.md', import.meta.url), 'utf8');
const tables = Object.values<unknown>(schema).flatMap((value) =>
  is(value, PgTable) ? [getTableConfig(value)] : [],
);

/** Returns the names in the first cells below the heading of a table. A cell may have several names. */
function columnsOnPage(table: string): string[] {
  const section = page.split(`\n## \`${table}\`\n`)[1]?.split('\n## ')[0] ?? '';
  const cells = [...section.matchAll(/^\| (`\w+`(?:, `\w+`)*) +\|/gm)].map(([, cell = '']) => cell);
  return cells.flatMap((cell) => [...cell.matchAll(/\w+/g)].map(([name]) => name));
}

describe('docs/state-tables.md', () => {
  it.each(tables)('has exactly the columns of $name', ({ name, columns }) => {
    expect(columnsOnPage(name).toSorted()).toEqual(columns.map((column) => column.name).toSorted());
  });

  it('has no table that does not exist', () => {
    const onPage = [...page.matchAll(/^## `(\w+)`$/gm)].map(([, name = '']) => name);
    // A view, and a table that the limiter's SQL creates.
    const others = ['discrepancies', 'quota_limiters'];
    expect(onPage.toSorted()).toEqual([...tables.map(({ name }) => name), ...others].toSorted());
  });

  it('says of every table what a row is and how long it is kept', () => {
    for (const { name } of tables)
      expect(page).toMatch(new RegExp(`^\\| \\[\`${name}\`\\]\\(#${name}\\) +\\| \\w.*\\| \\w`, 'm'));
  });
});
