import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import {
  documentToMail,
  toDocument,
  toJsonBody,
  toSlackBody,
  toTeamsBody,
} from '../../src/alerts/formats.js';
import { subjectOf, type Notice, type NoticeAlert } from '../../src/alerts/notice.js';
import { sign } from '../../src/alerts/channels.js';
import { documentToText } from '../../src/render/text.js';
import { parseSmtpAddress } from '../../src/connections/addresses.js';
import { AWKWARD, OBEYED } from '../support/situations.js';
import { verifyStandardWebhook } from '../support/standard-webhooks.js';

const SECRET = `whsec_${Buffer.from('a key of 24 bytes or more').toString('base64')}`;
const ALERT: NoticeAlert = {
  id: 7,
  event: 'opened',
  condition: 'drift',
  cause: 'drift rooms',
  title: '3 objects of <rooms> & *halls* drift',
  details: ['Not as last accepted: 3 changed.'],
  commands: ['slotsync verify rooms'],
  openedAt: new Date('2026-03-02T06:00:00Z'),
  recoveredAt: null,
};
const NOTICE = { id: 'msg_1', organization: { id: '42', service: 'https://api.example' }, alerts: [ALERT] };
const MANY = { ...NOTICE, alerts: Array.from({ length: 60 }, () => ALERT) };

const mailOf = (notice: Notice) => documentToMail(toDocument(notice), 'UTC');

describe('an alert message', () => {
  it('is complete in JSON, with the version of the format', () => {
    expect(JSON.parse(JSON.stringify(toJsonBody(NOTICE)))).toEqual({
      version: 1,
      organization: { id: '42', service: 'https://api.example' },
      alerts: [{ ...ALERT, openedAt: '2026-03-02T06:00:00.000Z' }],
    });
  });

  it('has at most 50 blocks for Slack, with &, < and > escaped', () => {
    const { text, blocks } = toSlackBody(NOTICE);
    expect(text).toBe('slotsync: 3 objects of &lt;rooms&gt; &amp; *halls* drift');
    expect(blocks[0]).toEqual({
      type: 'section',
      text: {
        type: 'mrkdwn',
        text: '*3 objects of &lt;rooms&gt; &amp; *halls* drift*\nNot as last accepted: 3 changed.\n`slotsync verify rooms`',
      },
    });
    const many = toSlackBody(MANY);
    expect(many.blocks.length).toBeLessThanOrEqual(50);
    expect(JSON.stringify(many)).toContain('and 20 more');
  });

  it('is an Adaptive Card for Teams, without markup and below 28 kB', () => {
    const { type, attachments } = toTeamsBody(NOTICE);
    expect(type).toBe('message');
    const [{ contentType, content } = { contentType: '', content: undefined }] = attachments;
    expect(contentType).toBe('application/vnd.microsoft.card.adaptive');
    expect(content).toMatchObject({ type: 'AdaptiveCard', version: '1.4' });
    expect(content?.body[0]).toEqual({
      type: 'RichTextBlock',
      inlines: [{ type: 'TextRun', text: ALERT.title, weight: 'Bolder', color: 'Attention' }],
    });
    expect(Buffer.byteLength(JSON.stringify(toTeamsBody(MANY)))).toBeLessThan(28_000);
  });

  it('is text and HTML in a mail, with values escaped in the HTML', () => {
    const { text, html } = mailOf(NOTICE);
    expect(text).toContain('- 3 objects of <rooms> & *halls* drift\n    Not as');
    expect(text).toContain('    → slotsync verify rooms');
    expect(html).toContain('3 objects of &lt;rooms&gt; &amp; *halls* drift</b>');
  });

  it('keeps each value within its line, in every form and in the subject', () => {
    const awkward = (name: string) => ({
      id: 'msg_1',
      organization: { id: name, service: name },
      alerts: [{ ...ALERT, title: name, details: [name], commands: [name] }],
    });
    const lines = (notice: Notice) => [
      subjectOf(notice),
      mailOf(notice).html,
      documentToText(toDocument(notice), { timeZone: 'UTC', columns: Infinity }),
      ...JSON.stringify([toSlackBody(notice), toTeamsBody(notice)], null, 1).split(/(?<=[^\\])\\n/),
    ];
    for (const line of lines(awkward(AWKWARD))) expect(line).not.toMatch(OBEYED);
    const count = (name: string) => lines(awkward(name)).flatMap((line) => line.split('\n')).length;
    expect(count(AWKWARD)).toBe(count('x'));
    expect(subjectOf(awkward(AWKWARD))).toContain(String.raw`a|b\nNothing needs a person.\u000d`);
  });

  it('has the title of its only alert as subject, or the number of its alerts', () => {
    const over = { ...ALERT, event: 'recovered' } as const;
    expect(subjectOf(NOTICE)).toBe(ALERT.title);
    expect(subjectOf({ ...NOTICE, alerts: [ALERT, ALERT, over] })).toBe('2 alerts, 1 over');
  });

  it('is signed as Standard Webhooks specifies', () => {
    const headers = sign({ id: 'msg_1', body: '{"a":1}' }, SECRET, 1_700_000_000_999);
    expect(headers).toMatchObject({ 'webhook-id': 'msg_1', 'webhook-timestamp': '1700000000' });
    expect(() => verifyStandardWebhook(headers, '{"a":1}', SECRET, 1_700_000_100)).not.toThrow();
    expect(() => verifyStandardWebhook(headers, '{"a":2}', SECRET, 1_700_000_100)).toThrow('no signature');
    expect(() => verifyStandardWebhook(headers, '{"a":1}', SECRET, 1_700_000_400)).toThrow('timestamp');
    const other = { ...headers, 'webhook-id': 'msg_2' };
    expect(() => verifyStandardWebhook(other, '{"a":1}', SECRET, 1_700_000_100)).toThrow('no signature');
  });

  it('is verified by these tests as the example of the authors of Standard Webhooks', () => {
    // The example stands in the tests of the libraries of Standard Webhooks.
    const headers = {
      'webhook-id': 'msg_p5jXN8AQM9LWM0D4loKWxJek',
      'webhook-timestamp': '1614265330',
      'webhook-signature': 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
    };
    const secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
    expect(() => verifyStandardWebhook(headers, '{"test": 2432232314}', secret, 1_614_265_330)).not.toThrow();
  });
});

describe('docs/alerts.md', () => {
  const page = readFileSync(new URL('../../docs/alerts.md', import.meta.url), 'utf8');

  it('shows code for receivers that accepts only what slotsync has signed', async () => {
    const [, code = ''] = /```js\n([^]*?)```/.exec(page) ?? [];
    const module = (await import(/* @vite-ignore */ `data:text/javascript,${encodeURIComponent(code)}`)) as {
      isFromSlotsync: (headers: object, body: string, secret: string, now?: number) => boolean;
    };
    const verify = module.isFromSlotsync;
    const body = JSON.stringify(toJsonBody(NOTICE));
    const headers = sign({ id: 'msg_1', body }, SECRET);
    expect(verify(headers, body, SECRET)).toBe(true);
    expect(verify(headers, `${body} `, SECRET)).toBe(false);
    expect(verify({ ...headers, 'webhook-id': 'msg_2' }, body, SECRET)).toBe(false);
    expect(verify(headers, body, `whsec_${Buffer.alloc(32).toString('base64')}`)).toBe(false);
    expect(verify(headers, body, SECRET, Date.now() / 1000 + 302)).toBe(false);
    expect(verify({}, body, SECRET)).toBe(false);
  });

  it('shows a body with exactly the keys that are sent', () => {
    const [, shown = ''] = /```json\n([^]*?)```/.exec(page) ?? [];
    const body = toJsonBody(NOTICE);
    const { alerts, ...rest } = JSON.parse(shown) as typeof body;
    expect(Object.keys(rest)).toEqual(Object.keys(body).filter((key) => key !== 'alerts'));
    expect(Object.keys(alerts[0] ?? {}).toSorted()).toEqual(Object.keys(ALERT).toSorted());
  });
});

describe('the address of a mail server', () => {
  it.each([
    [
      'smtps://u:p%40ss@mail.example',
      { port: 465, encryption: 'tls', credentials: { user: 'u', password: 'p@ss' } },
    ],
    ['smtp://u:p@mail.example', { port: 587, encryption: 'starttls' }],
    [
      'smtp://mail.example:25?tls=none',
      { host: 'mail.example', port: 25, encryption: 'none', credentials: undefined },
    ],
    ['smtp://u:p@127.0.0.1:2525?tls=none', { encryption: 'none' }],
  ])('is parsed: %s', (url, expected) => {
    expect(parseSmtpAddress(url)).toMatchObject(expected);
  });

  it.each([
    ['mail.example', /not a mail server/],
    ['https://mail.example', /not a mail server/],
    ['smtp://u:s3cret@mail.example/box', /path/],
    ['smtp://u@mail.example', /without a password/],
    ['smtp://u:s3cret@mail.example?tls=none', /unencrypted/],
    ['smtps://mail.example?tls=none', /always encrypted/],
    ['smtp://mail.example?pool=true', /parameter/],
    ['smtp://u:s3c%ret@mail.example', /%25/],
  ])('is refused without showing its password: %s', (url, fault) => {
    expect(() => parseSmtpAddress(url)).toThrow(fault);
    expect(() => parseSmtpAddress(url)).not.toThrow('s3c');
  });
});
