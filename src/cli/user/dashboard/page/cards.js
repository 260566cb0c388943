// What belongs to an election besides its pods.

import { html } from './lit-html/lit-html.js';

const TITLE = { service: 'Service', probe: 'Probe', lock: 'Lock and session', workloads: 'Workloads', clusters: 'Clusters' };

export function cards({ cards: all }) {
  return html`<div class="cards">${all.map(
    ({ kind, title, well, lines }) => html`<section class="card ${kind} ${tone(well)}" aria-labelledby="card-${kind}"><h2 id="card-${kind}">${TITLE[kind]}
        ${well === false ? html`<span class="mark">needs attention</span>` : ''}</h2>
      <p class="what">${title}</p>
      <dl>${lines.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl></section>`,
  )}</div>`;
}

const tone = well => ({ true: 'well', false: 'unwell' })[well] ?? '';
