import { describe, expect, it } from 'vitest';
import { compareShapes, describeShape, shapeOf } from '../../src/text/json-shape.js';

const compare = (was: unknown, is: unknown) => [...compareShapes(shapeOf(was), shapeOf(is))];

describe('describeShape', () => {
  it.each([
    ['a', 'text'],
    [1, 'number'],
    [null, 'null'],
    [[], '[]'],
    [{}, '{}'],
    [[1, 'a'], '[number | text]'],
    [{ id: 1, fields: [{ values: ['x'] }] }, '{ id: number, fields: [{ values: [text] }] }'],
    [[{ id: 1 }, { id: null, name: 'x' }], '[{ id: number | null, name?: text }]'],
    [[[], [1]], '[[number]]'],
  ])('shows %j as %s', (value, expected) => expect(describeShape(shapeOf(value))).toBe(expected));
});

describe('compareShapes', () => {
  it.each([
    [{ id: 1 }, { id: 2 }, []],
    [{ id: 1 }, { id: '1' }, ['id: was number, is text']],
    [[{ id: 1 }], [{ id: 1 }, { id: null }], ['[].id: was number, is also null']],
    [{ x: [{ code: 'x' }] }, { x: [{ name: 'x' }] }, ['x[].code: is gone', 'x[].name: is new']],
    // An empty list tells nothing of its elements, and a key that not every object had may be absent.
    [{ results: [{ id: 1 }] }, { results: [] }, []],
    [[{ id: 1, extId: 'a' }, { id: 2 }], [{ id: 3 }], []],
    [{ results: [] }, [], ['the body: was object, is list']],
  ])('reports the changes from %j to %j', (was, is, expected) => expect(compare(was, is)).toEqual(expected));
});
