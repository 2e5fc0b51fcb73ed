// Brings an open page up to date. The page works without it.
'use strict';
{
  const EVERY_MS = 2000;
  const LONGEST_MS = 15_000;
  const shown = document.getElementById('live');
  /** The ETag of the page whose parts are all shown. */
  let version = '""';
  let isAsking = false;

  const isInUse = (part) => {
    if (part.contains(document.activeElement)) return true;
    const selection = document.getSelection();
    return selection !== null && !selection.isCollapsed && part.contains(selection.anchorNode);
  };

  /** Replaces the parts that have changed. Returns false if a part stays because somebody uses it. */
  const replaceParts = (next) => {
    let isAll = true;
    for (const part of document.querySelectorAll('#header, #lead, section')) {
      const newer = next.getElementById(part.id);
      if (!newer || newer.isEqualNode(part)) continue;
      if (isInUse(part)) isAll = false;
      else part.replaceWith(newer);
    }
    return isAll;
  };

  const say = (text) => {
    if (shown.textContent !== text) shown.textContent = text;
  };

  const ask = async (signal) => {
    const answer = await fetch(location.href, {
      headers: { 'if-none-match': version },
      redirect: 'manual',
      signal,
    });
    if (answer.type === 'opaqueredirect') return location.reload(); // to sign in
    if (answer.status !== 304) {
      const next = new DOMParser().parseFromString(await answer.text(), 'text/html');
      if (!answer.ok) {
        const reasons = [...next.querySelectorAll('#lead p')].map(({ textContent }) => textContent);
        return say(`Not up to date: ${reasons.join(' ') || answer.status}`);
      }
      version = replaceParts(next) ? answer.headers.get('etag') : '""';
    }
    say('Up to date.');
  };

  const update = () => {
    if (document.hidden) return say('Not up to date: in the background.');
    if (isAsking) return;
    isAsking = true;
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(), LONGEST_MS);
    void ask(late.signal)
      .catch(() => say('Not up to date: no connection.'))
      .finally(() => {
        clearTimeout(timer);
        isAsking = false;
      });
  };

  if ('live' in document.body.dataset) {
    document.addEventListener('visibilitychange', update);
    addEventListener('pageshow', update);
    setInterval(update, EVERY_MS);
  }
}
