// The terms of an election as a picture, and each change of leader with its reason.

import { html, nothing, svg } from './lit-html/lit-html.js';
import { at, lasting, since } from './words.js';

/** The picture's own units. It is drawn as wide as there is room. */
const [WIDTH, HEIGHT, LEAST] = [1000, 76, 30];

export function timeline(election) {
  const { spans, changes } = election;
  return html`<section aria-labelledby="terms">
    <h2 id="terms">Terms</h2>
    ${changes.length
      ? html`${picture(spans)}
          <p class="legend"><span class="swatch leads"></span> a leader <span class="swatch gap"></span> no leader, or the leader is changing. Longer spans are wider, but not to scale.</p>
          <ol class="changes">${changes.map(change)}</ol>
          ${changes.length >= 10 ? html`<p class="hint">The last ten changes are kept. Earlier ones are in the Events and in your logs.</p>` : nothing}`
      : html`<p>The election has had no leader yet.</p>`}
  </section>`;
}

/** The length of a span, in milliseconds. */
const length = ({ from, until, took }) => took ?? Math.max(0, (until ?? Date.now()) - from);

/** Draws the spans side by side, from the oldest to now. Lengths differ by a factor of a billion, so each is as wide as its logarithm. */
function picture(spans) {
  const weight = span => Math.log10(1 + length(span) / 100);
  const room = WIDTH - LEAST * spans.length;
  const total = spans.reduce((sum, span) => sum + weight(span), 0) || 1;
  let x = 0;
  const parts = spans.map(span => {
    const width = LEAST + (room * weight(span)) / total;
    const part = { ...span, x, width };
    x += width;
    return part;
  });
  const words = spans.map(span => (span.leader ? `${span.leader} in term ${span.term} for ${lasting(length(span))}` : `no leader for ${lasting(length(span))}`));
  return html`<figure><svg class="terms" viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img"
      aria-label="From the oldest to now: ${words.join('; ')}">
    <defs><pattern id="hatch" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
      <rect width="8" height="8" class="hatch-ground"></rect><rect width="3" height="8" class="hatch-line"></rect></pattern></defs>
    ${parts.map(
      ({ leader, term, x, width }, place) => svg`<g><title>${words[place]}</title>
        <rect class=${leader ? `leads ${term % 2 ? 'odd' : 'even'}` : 'gap'} x=${x} y="0" width=${width} height=${HEIGHT}></rect></g>`,
    )}</svg>
    <div class="labels" aria-hidden="true">${parts.map(
      ({ leader, term, width, until }) => html`<span .style=${`flex: ${width} 0 0`}>${leader && width > 110
        ? html`<b>${leader}</b><i>term ${term}${until ? '' : ', now'}</i>`
        : nothing}</span>`,
    )}</div></figure>`;
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
