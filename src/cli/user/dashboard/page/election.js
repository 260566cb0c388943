// One election: a picture of its group, its time, its parts, and the actions on it.

import { html, nothing } from './lit-html/lit-html.js';
import { cards } from './cards.js';
import { ask } from './dialog.js';
import { events } from './events.js';
import { group } from './group.js';
import { history } from './history.js';
import { tiles } from './tiles.js';
import { timeline } from './timeline.js';
import { HEALTH, at, since } from './words.js';

export function election(data, shown) {
  const one = data?.election;
  if (!one) return html`<h1 tabindex="-1">${shown.name}</h1><p>${data?.trouble ? nothing : 'Reading the election …'}</p>`;
  const { sign, word } = HEALTH[one.health];
  return html`
    <div class="head"><div><h1 tabindex="-1">${one.name} <small>in ${one.namespace}</small></h1>
      <p class="state ${one.health}"><span class="badge"><span aria-hidden="true">${sign}</span><span class="unseen">${word}: </span> ${one.status}</span> ${one.message ?? nothing}</p></div>
      ${actions(one)}</div>
    ${one.idle ? html`<p class="warn idle" role="status"><strong>No operator.</strong> A lost leader stays lost until an operator acts: ${one.idle}.</p>` : nothing}
    <div class="picture" data-election="${one.namespace}/${one.name}">${leader(one)}${group(one)}</div>
    ${switchovers(one.switchovers)}
    ${notes('What prevents the operator from deciding', 'blocks', one.outlook.blocks)}
    <section class="terms" aria-labelledby="terms">${timeline(one)}${tiles(one)}</section>
    ${cards(one)}
    <div class="past">${history(one)}${events(one)}</div>
    ${notes('What can’t be seen with your rights', 'hidden', one.outlook.notVisible)}
    ${conditions(one.conditions)}
  `;
}

function leader(one) {
  const parts = [
    one.cluster && one.cluster !== one.leader ? `in the cluster ${one.cluster}` : null,
    one.node ? `on the node ${one.node}` : null,
    one.address ? `at ${one.address}` : null,
  ].filter(Boolean);
  return html`<section class="leader" aria-labelledby="leader"><h2 id="leader">Leader</h2>
    ${one.leader
      ? html`<p class="name">${one.leader}</p><p>term ${one.term ?? '–'}${one.since ? html`, for <time datetime=${new Date(one.since).toISOString()} title=${at(one.since)}>${since(one.since)}</time>` : nothing}
          ${parts.length ? html`<br>${parts.join(' ')}` : nothing}</p>`
      : html`<p class="name nobody">none</p><p>${one.term ? `the last term was ${one.term}` : 'there has been no term yet'}</p>`}
    <dl><dt>Now</dt><dd>${one.outlook.now}</dd>
    ${one.outlook.ifLost ? html`<dt>If the leader were lost</dt><dd>${one.outlook.ifLost}</dd>` : nothing}</dl>
  </section>`;
}

function actions(one) {
  const { switchover, pause } = one.may;
  const refused = [switchover, pause].filter(right => right !== true);
  return html`<section class="actions" aria-label="Actions">
    ${switchover === true && one.term
      ? html`<p><button type="button" @click=${() => ask('switchover', one)}>Move the leader …</button></p>` : nothing}
    ${pause === true
      ? html`<p><button type="button" @click=${() => ask(one.paused ? 'resume' : 'pause', one)}>${one.paused ? 'Resume …' : 'Pause …'}</button></p>` : nothing}
    ${switchover === true && !one.term ? html`<p>The election has had no leader yet, so there is none to move.</p>` : nothing}
    ${refused.map(why => html`<p class="refused">${why}</p>`)}
  </section>`;
}

function switchovers(all) {
  if (!all.length) return nothing;
  return html`<section aria-labelledby="switchovers"><h2 id="switchovers">Switchovers</h2>
    <ul class="notes">${all.map(
      ({ name, state, message, to }) => html`<li class=${state.toLowerCase()}><b>${state}</b> <code>${name}</code>${to ? ` to ${to}` : nothing}${message ? `: ${message}` : nothing}</li>`,
    )}</ul></section>`;
}

function notes(title, id, all) {
  if (!all.length) return nothing;
  return html`<section aria-labelledby=${id}><h2 id=${id}>${title}</h2><ul class="notes ${id}">${all.map(text => html`<li>${text}</li>`)}</ul></section>`;
}

function conditions(all) {
  return html`<details><summary>All conditions</summary><dl class="conditions">${all.map(
    ({ type, status, reason, message }) => html`<dt>${type}: ${status} <code>${reason}</code></dt><dd>${message}</dd>`,
  )}</dl></details>`;
}
