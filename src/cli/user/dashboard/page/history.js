// Each change of leader with its reason, newest first.

import { html, nothing } from './lit-html/lit-html.js';
import { at, lasting, since } from './words.js';

export function history({ changes }) {
  return html`<section aria-labelledby="changes"><h2 id="changes">Changes of leader</h2>
    ${changes.length ? html`<ol class="changes">${changes.map(change)}</ol>` : html`<p>The election has had no leader yet.</p>`}
    ${changes.length >= 10 ? html`<p class="hint">The last ten changes are kept. Earlier ones are in the Events and in your logs.</p>` : nothing}
  </section>`;
}

function change({ term, leader, previous, reason, why, at: moment, took }) {
  return html`<li class=${leader ? '' : 'gap'}>
    <p class="who">${leader ? html`<b>${leader}</b> leads in term ${term}` : html`<b>No leader</b> after term ${term}`}${previous
      ? `${leader ? ', instead of' : ' of'} ${previous}` : nothing}</p>
    <p class="why">${why ? html`because ${why} <code>${reason}</code>` : html`<code>${reason}</code>`}</p>
    <p class="when">${moment ? html`<time datetime=${new Date(moment).toISOString()}>${at(moment)}</time>, ${since(moment)} ago; ` : nothing}${lasting(took)}
      from the cause to the ${leader ? 'new label' : 'end of the old label'}</p>
  </li>`;
}
