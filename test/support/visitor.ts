// A browser as far as HTTP goes: it keeps cookies, sends forms as a page of the same address does, and shows every header.
import { once } from 'node:events';
import { request, type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';

export interface Answer {
  status: number;
  headers: IncomingHttpHeaders;
  body: string;
}

interface Asked {
  method?: string;
  headers?: Record<string, string>;
  form?: Record<string, string>;
  signal?: AbortSignal;
}

export function createVisitor(port: number) {
  const cookies = new Map<string, string>();

  async function visit(path: string, { method, headers = {}, form, signal }: Asked = {}): Promise<Answer> {
    const origin = `http://127.0.0.1:${port}`;
    const asForm = form && {
      origin,
      'sec-fetch-site': 'same-origin',
      'content-type': 'application/x-www-form-urlencoded',
    };
    const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join('; ');
    const given = { ...asForm, ...(cookie === '' ? {} : { cookie }), ...headers };
    const options = { method: method ?? (form ? 'POST' : 'GET'), headers: given, ...(signal && { signal }) };
    const asked = request(origin + path, options);
    asked.end(form && new URLSearchParams(form).toString());
    const [answer] = (await once(asked, 'response')) as [IncomingMessage];
    for (const set of answer.headers['set-cookie'] ?? []) {
      const [name = '', value = ''] = (set.split(';', 1)[0] ?? '').split('=');
      cookies.set(name, value);
    }
    return { status: answer.statusCode ?? 0, headers: answer.headers, body: await text(answer) };
  }

  return {
    visit,
    /** The hidden fields of the form with this address on a page. */
    async readForm(path: string, action = path): Promise<Record<string, string>> {
      const { body } = await visit(path);
      const form = body
        .split('<form ')
        .find((part) => part.includes(`action="${action.replaceAll('&', '&amp;')}"`));
      const fields = [...(form ?? '').matchAll(/<input type="hidden" name="([^"]+)" value="([^"]*)">/g)];
      return Object.fromEntries(fields.map(([, name = '', value = '']) => [name, value]));
    },

    signIn: (token: string) => visit('/sign-in', { form: { token, next: '/' } }),
  };
}
