// All elections, trouble first.

import { html, nothing } from './lit-html/lit-html.js';
import { repeat } from './lit-html/directives/repeat.js';
import { draw, state } from './state.js';
import { HEALTH, at, since } from './words.js';

export function list(data) {
  const elections = data?.elections;
  if (!elections) return html`<h1 tabindex="-1">Elections</h1><p>${data?.trouble ? nothing : 'Reading the elections …'}</p>`;
  const wanted = state.filter.trim().toLowerCase();
  const shown = elections.filter(
    one =>
      (!state.onlyProblems || !['well', 'paused'].includes(one.health)) &&
      (!wanted || [one.namespace, one.name, one.leader, one.status, one.node].some(text => text?.toLowerCase().includes(wanted))),
  );
  return html`
    <h1 tabindex="-1">Elections <small>${data.about.scope}</small></h1>
    ${elections.length ? summary(elections) : html`<p>There are no elections here yet.</p>`}
    ${elections.length
      ? html`<search class="filter">
            <label>Find <input type="search" .value=${state.filter} placeholder="name, namespace, leader, node" @input=${find}></label>
            <label><input type="checkbox" .checked=${state.onlyProblems} @change=${only}> show problems only</label>
          </search>
          ${shown.length ? table(shown) : html`<p>No election matches.</p>`}`
      : nothing}
  `;
}

function find({ target }) {
  state.filter = target.value;
  draw();
}

function only({ target }) {
  state.onlyProblems = target.checked;
  draw();
}

function summary(elections) {
  const counts = Object.entries(HEALTH)
    .map(([health, { sign, word }]) => ({ health, sign, word, count: elections.filter(one => one.health === health).length }))
    .filter(({ count }) => count);
  return html`<ul class="summary">${counts.map(
    ({ health, sign, word, count }) => html`<li class=${health}><span aria-hidden="true">${sign}</span> ${count} ${word}</li>`,
  )}</ul>`;
}

function table(elections) {
  return html`<table class="elections">
    <caption class="unseen">Elections, those with a problem first</caption>
    <thead><tr><th scope="col">Election</th><th scope="col">Status</th><th scope="col">Leader</th><th scope="col" class="number wide">Term</th>
      <th scope="col" class="wide">Candidates</th><th scope="col" class="wide">Class</th><th scope="col" class="wide">Leads for</th></tr></thead>
    <tbody>${repeat(elections, one => `${one.namespace}/${one.name}`, row)}</tbody>
  </table>`;
}

/** Lets a word such as NoEligiblePod break before its capitals. */
const breakable = word => word.split(/(?=[A-Z])/).map((part, place) => (place ? html`<wbr>${part}` : part));

function row(one) {
  const { sign, word } = HEALTH[one.health];
  return html`<tr class=${one.health}>
    <th scope="row"><span class="namespace">${one.namespace}/</span><a href="#/${encodeURIComponent(one.namespace)}/${encodeURIComponent(one.name)}">${one.name}</a></th>
    <td class="status"><span aria-hidden="true">${sign}</span> <span class="unseen">${word}: </span>${breakable(one.status)}</td>
    <td>${one.leader ?? html`<span class="nobody">none</span>`}${one.cluster && one.cluster !== one.leader ? html` <small>in ${one.cluster}</small>` : nothing}</td>
    <td class="number wide">${one.term ?? '–'}</td>
    <td class="wide">${one.candidates ?? '–'}</td>
    <td class="wide">${one.className ?? '–'}</td>
    <td class="wide">${one.since ? html`<time datetime=${new Date(one.since).toISOString()} title=${at(one.since)}>${since(one.since)}</time>` : '–'}</td>
  </tr>
  ${one.message ? html`<tr class="message ${one.health}"><td colspan="7">${one.message}</td></tr>` : nothing}`;
}
