// An election in five figures.

import { html, nothing } from './lit-html/lit-html.js';
import { reach } from './timeline.js';
import { HOUR, RANGES, at, duration, lasting, since } from './words.js';

export function tiles(one) {
  const reached = reach(one);
  const start = Date.now() - reached * HOUR;
  const count = one.handovers.filter(moment => moment >= start).length;
  const gaps = one.spans.filter(span => !span.leader && (span.until ?? Date.now()) >= start).map(duration).sort((a, b) => a - b);
  const middle = gaps.length >> 1;
  const median = gaps.length % 2 ? gaps[middle] : (gaps[middle - 1] + gaps[middle]) / 2;
  const partly = one.knownSince && one.knownSince > start ? 'at least: earlier ones are not known' : nothing;
  const range = RANGES.find(({ hours }) => hours === reached).title;
  const none = html`<b>–</b><small>no gap in ${range}</small>`;
  return html`<dl class="tiles">
    ${tile('Leader since', one.leader && one.since ? html`<b><time datetime=${new Date(one.since).toISOString()}>${since(one.since)}</time></b><small>${at(one.since)}</small>` : html`<b>–</b><small>no leader</small>`)}
    ${tile(`Handovers in ${range}`, html`<b>${count}</b><small>${partly}</small>`)}
    ${tile('Median gap', gaps.length ? html`<b>${lasting(median)}</b><small>without a leader</small>` : none)}
    ${tile('Longest gap', gaps.length ? html`<b>${lasting(gaps.at(-1))}</b><small>in ${range}</small>` : none)}
    ${tile('Worst case', one.worst == null ? html`<b>–</b><small>the election promises none</small>` : html`<b>${lasting(one.worst * 1000)}</b><small>until the next leader has its label</small>`)}
  </dl>`;
}

const tile = (title, value) => html`<div><dt>${title}</dt><dd>${value}</dd></div>`;
