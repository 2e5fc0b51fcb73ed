// Names of the mirror and the service survive in the file that init writes.
import { runInThisContext } from 'node:vm';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { checkConfiguration } from '../../src/config/config-file.js';
import { renderConfiguration, quote, renderServiceTypes } from '../../src/sync/init/configuration-file.js';

/** Evaluates the exported object. The file is JavaScript except for its import. */
function evaluate(text: string): unknown {
  const [, exported = ''] = text.split(/^export default defineConfig/m);
  return runInThisContext(exported);
}

/** Any text except NUL, which names in PostgreSQL cannot have, and `__proto__`, which a configuration refuses. Often has characters that are escaped. */
const ESCAPED = ['__proto__', ...Array.from(`'"\`\\.{} \n\r\t\u2028$/*`)];
const name = fc
  .array(fc.oneof(fc.constantFrom(...ESCAPED), fc.string({ unit: 'grapheme', minLength: 1 })), {
    minLength: 1,
    maxLength: 5,
  })
  .map((parts) =>
    parts
      .join('')
      .replaceAll('\0', 'x')
      .replace(/^__proto__$/, '__proto'),
  );
/** A name at the service neither begins nor ends with a blank. */
const trimmed = name.filter((text) => text === text.trim());
const bare = name.map((text) => text.replaceAll(/[{}]/g, 'x'));

describe('the configuration that init writes', () => {
  it('is read back with the same names, whatever they contain', () => {
    const names = fc.record({
      schema: name,
      table: name,
      key: bare,
      column: name,
      type: trimmed,
      field: trimmed,
      title: name,
      isWhole: fc.boolean(),
    });
    fc.assert(
      fc.property(names, ({ schema, table, key, column, type, field, title, isWhole }) => {
        const named = { id: '1', extId: field, name: title, types: [], filled: 0 };
        const keys = { primaryKey: undefined, uniqueKeys: [], foreignKeys: [] };
        const relation = { schema, name: table, kind: 'table' as const, rows: 1, columns: [], ...keys };
        const text = renderConfiguration(
          {
            streams: [
              {
                name: 'rooms',
                table: relation,
                type: { id: '1', extId: type, name: title, objects: 0, withoutExtId: 0, extIds: [] },
                unsure: title,
                key: { columns: [key], unsure: title },
                externalId: { template: `x_{${key}}` },
                fields: [
                  { field: named, columns: [column], unsure: title },
                  { field: { ...named, extId: `${field}+` }, columns: [column, key] },
                ],
                references: [],
                cursor: column,
                offers: [{ field: { ...named, extId: `${field}-` }, columns: [column] }],
                join: { table: relation, on: [column, key], fields: [{ field: named, columns: [column] }] },
                currency: [{ column, condition: title }],
                unplaced: [{ columns: [column], stream: table, why: title }],
                columns: isWhole ? undefined : [column, key],
                unusedColumns: [column],
                secrets: [column],
                emptyFields: [{ field: named, column: undefined }],
              },
            ],
            leftOut: [{ table: { schema, name: table }, why: title }],
            typesWithoutTable: [],
            fieldsWithoutColumn: [named],
          },
          { service: title, database: table, types: undefined },
        );
        const [stream] = checkConfiguration(evaluate(text)).streams;
        expect(stream).toMatchObject({
          source: isWhole ? { table: [schema, table] } : { table: [schema, table], columns: [column, key] },
          key: [key],
          type,
          cursor: column,
        });
        expect(stream?.fields.get(field)).toBe(column);
        const joined = stream?.fields.get(`${field}+`) as (row: object) => unknown;
        expect(joined({ [column]: 'a', [key]: 'b' })).toBe(column === key ? 'b b' : 'a b');
      }),
    );
  });

  it('has each name of the service on one line of TypeScript', () => {
    fc.assert(
      fc.property(name, name, (extId, title) => {
        const field = { id: '1', extId, name: title, types: [], filled: 0 };
        const lines = renderServiceTypes({ types: [], fields: [field] }, title).split('\n');
        expect(lines).toHaveLength(9);
        expect(lines[6]).toMatch(/^ {4}\| '/);
        expect(quote(extId)).not.toMatch(/[\n\r\u2028\u2029]/);
      }),
    );
  });
});
