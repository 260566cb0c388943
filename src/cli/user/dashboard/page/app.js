// The page of `lictor dashboard`. The program pushes its state, and the whole page is drawn from it each time: lit-html changes only
// the differences. The page itself stores only the reader's place.

import { html, nothing, render } from './lit-html/lit-html.js';
import { list } from './list.js';
import { election } from './election.js';
import { connect } from './group.js';
import { dialog, close } from './dialog.js';
import { draw, drawBy, state } from './state.js';

/** How long to wait before a stream that the browser gave up is opened again, in milliseconds. */
const PAUSE = 2000;
/** How often ages are redrawn, in milliseconds. */
const PERIOD = 5000;

let stream = null;
let retry = 0;
let headingWanted = false;

/** Opens the stream of what is shown. There is one at a time, because a browser opens only six to one address. */
function follow() {
  clearTimeout(retry);
  stream?.close();
  const path = state.shown ? `live/${encodeURIComponent(state.shown.namespace)}/${encodeURIComponent(state.shown.name)}` : 'live';
  const own = new EventSource(path);
  stream = own;
  own.onmessage = ({ data }) => {
    if (own !== stream) return;
    state.connected = true;
    const sent = JSON.parse(data);
    tell(state.data, sent);
    // The last known state stays on the page while a read fails.
    state.data = sent.election || sent.elections ? sent : { ...state.data, ...sent };
    draw();
  };
  own.onerror = () => {
    if (own !== stream) return;
    state.connected = false;
    draw();
    if (own.readyState === EventSource.CLOSED) retry = setTimeout(follow, PAUSE);
  };
}

/** Announces changes to screen readers. */
function tell(before, now) {
  const said = document.getElementById('said');
  if (now.trouble && now.trouble !== before?.trouble) said.textContent = now.trouble;
  if (!before) return;
  if (now.election && before.election) {
    const [was, is] = [before.election, now.election];
    if (was.status !== is.status || was.leader !== is.leader || was.term !== is.term) {
      said.textContent = `${is.name}: ${is.status}, ${is.leader ? `${is.leader} leads in term ${is.term}` : 'no leader'}`;
    }
  } else if (now.elections && before.elections) {
    const was = new Map(before.elections.map(one => [`${one.namespace}/${one.name}`, one]));
    const changed = now.elections.filter(one => {
      const old = was.get(`${one.namespace}/${one.name}`);
      return !old || old.health !== one.health || old.leader !== one.leader;
    });
    if (changed.length > 3) said.textContent = `${changed.length} elections have changed`;
    else if (changed.length) {
      said.textContent = changed.map(one => `${one.name}: ${one.status}, ${one.leader ? `${one.leader} leads` : 'no leader'}`).join('. ');
    }
  }
}

/** Reads what to show from the address: #/NAMESPACE/NAME, or all. */
function go() {
  const [namespace, name] = location.hash.replace(/^#\/?/, '').split('/').map(decodeURIComponent);
  state.shown = namespace && name ? { namespace, name } : null;
  state.data = null;
  headingWanted = true;
  document.title = state.shown ? `${name} in ${namespace}: election` : 'Elections';
  close();
  draw();
  follow();
}

/** The current problem. Shows one message at a time, for the nearest cause. */
function trouble() {
  if (!state.connected) {
    return html`<p class="trouble" role="alert"><strong>The page is not live.</strong>
      The command <code>lictor dashboard</code> does not answer${state.data ? ', so the page shows the last known state' : ''}. If it has ended, start
      it again, and open the address that it prints.</p>`;
  }
  return state.data?.trouble
    ? html`<p class="trouble" role="alert"><strong>Can't read this now:</strong> ${state.data.trouble}</p>`
    : nothing;
}

function page() {
  const { data, shown } = state;
  const about = data?.about;
  const isLive = state.connected && data && !data.trouble;
  render(
    html`
      <header>
        <nav aria-label="Place"><a href="#/">Elections</a>${shown ? html` <span aria-hidden="true">›</span> ${shown.namespace} <span aria-hidden="true">›</span>
          <span aria-current="page">${shown.name}</span>` : nothing}</nav>
        <p class="about">${about ? [about.context, about.user].filter(Boolean).join(' · ') : nothing}
          <span class="live ${isLive ? 'is' : ''}">${isLive ? 'live' : 'not live'}</span></p>
      </header>
      ${trouble()}
      <main>${shown ? election(data, shown) : list(data)}</main>
      ${dialog(data)}
    `,
    document.getElementById('page'),
  );
  connect();
  // Announces the place after a link was followed, but not for the first page.
  const heading = document.querySelector('h1');
  if (headingWanted && heading && data) {
    headingWanted = false;
    if (navigated) heading.focus();
    navigated = true;
  }
}

let navigated = false;

drawBy(page);
addEventListener('hashchange', go);
addEventListener('resize', connect);
// A hidden page holds no stream.
document.addEventListener('visibilitychange', () => {
  if (document.visibilityState === 'visible') follow();
  else {
    stream?.close();
    stream = null;
  }
});
setInterval(draw, PERIOD);
go();
