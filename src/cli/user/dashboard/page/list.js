// All elections, trouble first or as the reader sorts them.

import { html, nothing } from './lit-html/lit-html.js';
import { repeat } from './lit-html/directives/repeat.js';
import { spark } from './spark.js';
import { draw, state } from './state.js';
import { HEALTH, HOUR, at, since } from './words.js';

/** The class of elections that no operator has seen. */
const BUILT_IN = 'lease';

export function list(data) {
  const elections = data?.elections;
  if (!elections) return html`<h1 tabindex="-1">Elections</h1><p>${data?.trouble ? nothing : 'Reading the elections …'}</p>`;
  const idle = one => data.operators?.idle[one.className ?? BUILT_IN];
  const shown = sorted(elections.filter(wanted()));
  return html`
    <h1 tabindex="-1">Elections <small>${data.about.scope}</small></h1>
    ${elections.length ? summary(elections) : html`<p>There are no elections here yet.</p>`}
    ${operators(elections, idle, data.operators)}
    ${elections.length ? filter(elections) : nothing}
    ${elections.length ? (shown.length ? table(shown, idle) : html`<p>No election matches.</p>`) : nothing}
  `;
}

/** Whether an election is one of those that the reader wants to see. */
function wanted() {
  const text = state.filter.trim().toLowerCase();
  return one =>
    (!state.onlyProblems || !['well', 'paused'].includes(one.health)) &&
    (!state.namespace || one.namespace === state.namespace) &&
    (!text || [one.namespace, one.name, one.leader, one.status, one.node].some(value => value?.toLowerCase().includes(text)));
}

function operators(elections, idle, { unknown } = {}) {
  const left = elections.filter(idle);
  const reasons = [...new Set(left.map(idle))];
  if (left.length) {
    return html`<p class="warn idle" role="status"><strong>${left.length === 1 ? 'One election has' : `${left.length} elections have`} no operator.</strong>
      A lost leader stays lost until an operator acts: ${reasons.slice(0, 2).join('; ')}.</p>`;
  }
  return unknown ? html`<p class="hint">Whether an operator acts is not known: ${unknown}</p>` : nothing;
}

const set = field => ({ target }) => {
  state[field] = target.type === 'checkbox' ? target.checked : target.value;
  draw();
};

function filter(elections) {
  const namespaces = [...new Set(elections.map(one => one.namespace))].sort();
  // An election of the chosen namespace may have been the last one.
  if (state.namespace && !namespaces.includes(state.namespace)) namespaces.unshift(state.namespace);
  return html`<search class="filter">
    <label>Find <input type="search" .value=${state.filter} placeholder="name, namespace, leader, node" @input=${set('filter')}></label>
    ${namespaces.length > 1
      ? html`<label>Namespace <select name="namespace" @change=${set('namespace')}><option value="" ?selected=${!state.namespace}>all ${namespaces.length}</option>
          ${namespaces.map(name => html`<option value=${name} ?selected=${state.namespace === name}>${name}</option>`)}</select></label>`
      : nothing}
    <label class="check"><input type="checkbox" .checked=${state.onlyProblems} @change=${set('onlyProblems')}> show problems only</label>
  </search>`;
}

function summary(elections) {
  const counts = Object.entries(HEALTH)
    .map(([health, { sign, word }]) => ({ health, sign, word, count: elections.filter(one => one.health === health).length }))
    .filter(({ count }) => count);
  return html`<ul class="summary">${counts.map(
    ({ health, sign, word, count }) => html`<li class=${health}><span aria-hidden="true">${sign}</span> ${count} ${word}</li>`,
  )}</ul>`;
}

const SEVERITY = Object.keys(HEALTH);
const moved = one => one.handovers.filter(moment => moment > Date.now() - 24 * HOUR).length;
const byText = new Intl.Collator(undefined, { numeric: true }).compare;

/** The columns, each with the order of a first click; `falls`: the highest number first. */
const COLUMNS = [
  { id: 'name', title: 'Election', order: (a, b) => byText(`${a.namespace}/${a.name}`, `${b.namespace}/${b.name}`) },
  { id: 'status', title: 'Status', order: (a, b) => SEVERITY.indexOf(a.health) - SEVERITY.indexOf(b.health) },
  { id: 'leader', title: 'Leader', order: (a, b) => byText(a.leader ?? '', b.leader ?? '') },
  { id: 'since', title: 'Leads for', wide: true, order: (a, b) => (b.since ?? Infinity) - (a.since ?? Infinity) || 0 },
  { id: 'moved', title: 'Handovers, 24 h', wide: true, falls: true, order: (a, b) => moved(b) - moved(a) },
  { id: 'term', title: 'Term', wide: true, number: true, falls: true, order: (a, b) => (b.term ?? 0) - (a.term ?? 0) },
  { id: 'candidates', title: 'Eligible', wide: true },
  { id: 'class', title: 'Class', wide: true, order: (a, b) => byText(a.className ?? '', b.className ?? '') },
];

/** Elections that are equal stay in the order in which the program sends them: problems first, then by name. */
function sorted(elections) {
  const { by, back } = state.sort;
  const { order } = COLUMNS.find(({ id }) => id === by);
  return [...elections].sort((a, b) => (back ? order(b, a) : order(a, b)));
}

function heading({ id, title, wide, number, falls, order }) {
  const { by, back } = state.sort;
  const own = by === id;
  const isFalling = back !== Boolean(falls);
  const sort = () => {
    state.sort = { by: id, back: own && !back };
    draw();
  };
  return html`<th scope="col" class="${wide ? 'wide' : ''} ${number ? 'number' : ''}" aria-sort=${own ? (isFalling ? 'descending' : 'ascending') : nothing}>${order
    ? html`<button type="button" class="sort" @click=${sort}>${title}<span aria-hidden="true">${own ? (isFalling ? ' ▾' : ' ▴') : ''}</span></button>`
    : title}</th>`;
}

function table(elections, idle) {
  return html`<table class="elections">
    <caption class="unseen">Elections. The buttons in the head sort them.</caption>
    <thead><tr>${COLUMNS.map(heading)}</tr></thead>
    <tbody>${repeat(elections, one => `${one.namespace}/${one.name}`, one => row(one, idle(one)))}</tbody>
  </table>`;
}

/** Lets a word such as NoEligiblePod break before its capitals. */
const breakable = word => word.split(/(?=[A-Z])/).map((part, place) => (place ? html`<wbr>${part}` : part));

function row(one, idle) {
  const { sign, word } = HEALTH[one.health];
  return html`<tr class=${one.health}>
    <th scope="row"><span class="namespace">${one.namespace}/</span><a href="#/${encodeURIComponent(one.namespace)}/${encodeURIComponent(one.name)}">${one.name}</a></th>
    <td class="status"><span aria-hidden="true">${sign}</span> <span class="unseen">${word}: </span>${breakable(one.status)}${idle ? html` <span class="mark" title=${idle}>no operator</span>` : nothing}</td>
    <td>${one.leader ?? html`<span class="nobody">none</span>`}${one.cluster && one.cluster !== one.leader ? html` <small>in ${one.cluster}</small>` : nothing}</td>
    <td class="wide">${one.since ? html`<time datetime=${new Date(one.since).toISOString()} title=${at(one.since)}>${since(one.since)}</time>` : '–'}</td>
    <td class="wide">${spark(one)}</td>
    <td class="number wide">${one.term ?? '–'}</td>
    <td class="wide">${one.candidates ?? '–'}</td>
    <td class="wide">${one.className ?? '–'}</td>
  </tr>
  ${one.message ? html`<tr class="message ${one.health}"><td colspan="8">${one.message}</td></tr>` : nothing}`;
}
