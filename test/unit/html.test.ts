import { describe, expect, it } from 'vitest';
import { html } from '../../src/text/html.js';

describe('html', () => {
  it('html: values are escaped, between tags and in attributes', () => {
    const name = `<script>alert("1")</script> & 'b'`;
    expect(String(html`<td title="${name}">${name}</td>`)).toBe(
      '<td title="&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt; &amp; &#39;b&#39;">' +
        '&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt; &amp; &#39;b&#39;</td>',
    );
  });

  it('html: a template in a template is not escaped again, and a list is its elements', () => {
    const rows = ['a', '<b>'].map((key) => html`<li>${key}</li>`);
    expect(String(html`<ul>${rows}</ul>`)).toBe('<ul><li>a</li><li>&lt;b&gt;</li></ul>');
  });

  it('html: null, undefined and false are nothing; 0 is a number', () => {
    expect(String(html`${null}${undefined}${false}${0}`)).toBe('0');
  });

  it('html: an object that looks like HTML is text', () => {
    const forged = { toString: () => '<b>' } as unknown as string;
    expect(String(html`${forged}`)).toBe('&lt;b&gt;');
  });
});
