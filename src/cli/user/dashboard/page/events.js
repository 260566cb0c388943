// The Events about an election that the API server still has, newest first.

import { html, nothing } from './lit-html/lit-html.js';
import { at, since } from './words.js';

export function events({ events: all }) {
  if (!all.length) return nothing;
  return html`<section aria-labelledby="events"><h2 id="events">Events</h2>
    <ul class="events">${all.map(
      ({ at: moment, warning, reason, note }) => html`<li class=${warning ? 'warning' : ''}><span class="ago">${moment ? html`<time datetime=${new Date(moment).toISOString()} title=${at(moment)}>${since(moment)}</time>` : '–'}</span>
        <p><b>${warning ? html`<span aria-hidden="true">▲ </span><span class="unseen">Warning: </span>` : nothing}${reason}</b> ${note}</p></li>`,
    )}</ul>
    <p class="hint">A cluster usually keeps Events for an hour. Earlier ones are not known here.</p></section>`;
}
