// Keeps an open page up to date. The page works without this script.
'use strict';
{
  const EVERY_MS = 2000;
  const LONGEST_MS = 15_000;
  const status = document.getElementById('live');
  /** Time zone of the page's times. Undefined if the page is not updated automatically. */
  const { live: timeZone } = document.body.dataset;
  /** ETag of the page that is shown. */
  let version = '""';
  let currentAt = new Date();
  let isAsking = false;

  /**
   * Returns a name for a node: nodes of equal name in the old and the new page show the same thing. A row or a list
   * entry is named after its first link.
   */
  const nameOf = (node) => {
    if (!(node instanceof Element)) return node.nodeName;
    const named = node.matches('li, tr') ? node.querySelector('[href], [action]') : node;
    return [node.nodeName, node.id, named?.getAttribute('href'), named?.getAttribute('action')].join(' ');
  };

  /**
   * Changes only nodes that differ. Keeps what an operator uses: focus, selected text, scroll position of a table,
   * typed text, and a button that is being pressed.
   */
  const makeLike = (node, newer) => {
    if (node.isEqualNode(newer)) return;
    node.nodeValue = newer.nodeValue;
    const names = new Set([node, newer].flatMap((each) => each.getAttributeNames?.() ?? []));
    names.delete('open'); // what an operator unfolded
    for (const name of names)
      if (newer.hasAttribute(name)) node.setAttribute(name, newer.getAttribute(name));
      else node.removeAttribute(name);
    let left = [...node.childNodes];
    for (const child of newer.childNodes) {
      const at = left.findIndex((each) => nameOf(each) === nameOf(child));
      for (const gone of left.splice(0, at)) gone.remove();
      if (at < 0) node.insertBefore(child.cloneNode(true), left[0] ?? null);
      else makeLike(left.shift(), child);
    }
    for (const gone of left) gone.remove();
  };

  const say = (text) => {
    if (status.textContent !== text) status.textContent = text;
  };
  const sayOutdated = (reason) =>
    say(`Not up to date since ${currentAt.toLocaleTimeString('en-GB', { timeZone })}: ${reason}`);

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
        const reasons = [...next.querySelectorAll('#content p')].map(({ textContent }) => textContent);
        return sayOutdated(reasons.join(' ') || answer.status);
      }
      for (const part of document.querySelectorAll('#header, #content'))
        makeLike(part, next.getElementById(part.id));
      version = answer.headers.get('etag');
    }
    currentAt = new Date();
    say('Up to date.');
  };

  const update = () => {
    if (document.hidden) return sayOutdated('it is in the background.');
    if (isAsking) return;
    isAsking = true;
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(), LONGEST_MS);
    void ask(late.signal)
      .catch(() => sayOutdated('no connection.'))
      .finally(() => {
        clearTimeout(timer);
        isAsking = false;
      });
  };

  // Browsers offer the clipboard only over HTTPS and on this machine.
  if (navigator.clipboard) {
    document.documentElement.classList.add('copies');
    document.addEventListener('click', ({ target }) => {
      const button = target instanceof Element && target.closest('.copy');
      if (!button) return;
      const text = button.previousElementSibling.textContent;
      void navigator.clipboard.writeText(text).then(
        () => say(`Copied: ${text}`),
        () => say('The browser does not copy.'),
      );
    });
  }

  if (timeZone !== undefined) {
    document.addEventListener('visibilitychange', update);
    addEventListener('pageshow', update);
    setInterval(update, EVERY_MS);
  }
}
