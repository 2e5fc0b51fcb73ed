// Brings the sections of an open page up to date. The page works without it.
'use strict';
{
  const address = document.body.dataset.live;
  const shown = document.getElementById('live');
  /** Sections that somebody is at, and their latest text. */
  const waiting = new Map();

  const isInUse = (section) => {
    if (section.contains(document.activeElement)) return true;
    const selection = document.getSelection();
    return selection !== null && !selection.isCollapsed && section.contains(selection.anchorNode);
  };

  const replace = (id, text) => {
    const section = document.getElementById(id);
    const template = document.createElement('template');
    template.innerHTML = text;
    const next = template.content.firstElementChild;
    if (!section || !next || next.dataset.version === section.dataset.version) return;
    if (isInUse(section)) waiting.set(id, text);
    else section.replaceWith(next);
  };

  const replaceWaiting = () => {
    const late = [...waiting];
    waiting.clear();
    for (const [id, text] of late) replace(id, text);
  };

  const say = (text) => {
    if (shown && shown.textContent !== text) shown.textContent = text;
  };

  let events;

  const disconnect = () => {
    events?.close();
    events = undefined;
    say('Not up to date: not connected.');
  };

  // Only while it is seen: a browser has six connections to a host, and a seventh open tab would not even load.
  const connect = () => {
    if (events || document.hidden) return;
    events = new EventSource(address);
    events.addEventListener('message', ({ data }) => {
      const { id, html, problem, reload } = JSON.parse(data);
      if (reload) return location.reload();
      if (problem !== undefined) return say(`Not up to date: ${problem}`);
      if (id !== undefined) return replace(id, html);
      say('Up to date.');
      replaceWaiting();
    });
    events.addEventListener('error', ({ target }) => {
      say('Not up to date: no connection.');
      if (target.readyState !== EventSource.CLOSED) return; // the browser tries again
      disconnect();
      setTimeout(connect, 15_000);
    });
  };

  if (address) {
    document.addEventListener('focusout', () => setTimeout(replaceWaiting));
    document.addEventListener('selectionchange', replaceWaiting);
    document.addEventListener('visibilitychange', () => (document.hidden ? disconnect() : connect()));
    addEventListener('pagehide', disconnect);
    // A page that comes back from the browser's memory is not live any more.
    addEventListener('pageshow', ({ persisted }) => {
      if (persisted) location.reload();
    });
    connect();
  }
}
