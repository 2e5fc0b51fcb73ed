// Operations that a plan, a poll and `explain` decide on for one key, as a table.
import { describe, expect, it } from 'vitest';
import { decideOperation, parseMark } from '../../src/sync/object/decide-operation.js';

const ROW = '7';
const mark = (text: string) => parseMark(text);

describe('the operation for a key', () => {
  it.each([
    // row, record, decision, forced
    ['no row', undefined, 'ended', 'ended'],
    ['no row', '7', 'retire', 'retire'],
    ['no row', 'doubt:a:', 'retire', 'retire'],
    ['no row', 'deferred:n:', 'forget', 'forget'],
    ['no row', 'deferred:a:', 'retire', 'retire'],
    ['no row', 'pending:n:', 'forget', 'forget'],
    ['no row', 'dead:n:7', 'forget', 'forget'],
    ['no row', 'dead:a:7', 'retire', 'retire'],
    ['no row', 'reserved:a:', 'retire', 'retire'],
    ['no row', 'unretired:a:', 'dead', 'dead'],
    ['no row', 'retired:a:', 'ended', 'ended'],
    ['no row', 'repair:a:', 'repair', 'repair'],
    ['no row', 'resend:a:', 'retire', 'retire'],
    ['no row', 'resend:n:', 'forget', 'forget'],
    ['row', undefined, 'create', 'create'],
    ['row', '7', 'unchanged', 'update'],
    ['row', '8', 'update', 'update'],
    ['row', 'synced:a:7:gone', 'unchanged', 'update'],
    ['row', 'retired:a:', 'update', 'update'],
    ['row', 'dead:n:7', 'dead', 'retry'],
    ['row', 'dead:n:8', 'create', 'create'],
    ['row', 'dead:a:8', 'update', 'update'],
    ['no row', 'repair:a:7', 'retire', 'retire'],
    ['row', 'repair:a:7', 'repair', 'repair'],
    ['row', 'repair:a:8', 'update', 'update'],
    ['row', 'repair:a:', 'update', 'update'],
    ['row', 'resend:a:', 'update', 'update'],
    ['row', 'resend:n:', 'create', 'create'],
    ['row', 'doubt:a:', 'retry', 'retry'],
    ['row', 'doubt:a:7', 'check', 'retry'],
    ['row', 'doubt:a:8', 'retry', 'retry'],
    ['row', 'pending:n:', 'retry', 'retry'],
    ['row', 'deferred:n:', 'retry', 'retry'],
    ['row', 'failed:n:', 'retry', 'retry'],
    ['row', 'shared:n:', 'retry', 'retry'],
    ['row', 'reserved:a:', 'retry', 'retry'],
    ['row', 'unretired:a:', 'retry', 'retry'],
  ])('is decided by row and record: %s, record %s: %s, when forced %s', (row, record, decision, forced) => {
    const hash = row === 'row' ? ROW : undefined;
    const known = record === undefined ? undefined : mark(record);
    expect(decideOperation(hash, known)).toBe(decision);
    expect(decideOperation(hash, known, true)).toBe(forced);
  });
});
