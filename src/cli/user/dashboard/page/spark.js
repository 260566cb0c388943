// The handovers of the last day as a small picture, a bar for each hour.

import { html, svg, nothing } from './lit-html/lit-html.js';
import { HOUR } from './words.js';

const HOURS = 24;
/** The width of an hour and the height of the picture, in its own units. */
const [STEP, HEIGHT] = [4, 18];

export function spark({ handovers, knownSince, created }) {
  const now = Date.now();
  const start = now - HOURS * HOUR;
  const counts = new Array(HOURS).fill(0);
  for (const moment of handovers) {
    const place = Math.floor((moment - start) / HOUR);
    if (place >= 0) counts[Math.min(place, HOURS - 1)] += 1;
  }
  const count = counts.reduce((sum, one) => sum + one, 0);
  const most = Math.max(3, ...counts);
  const bars = counts
    .map((one, place) => (one ? `M${place * STEP + 0.5},${HEIGHT - 1}v${-(2 + ((HEIGHT - 4) * one) / most)}h${STEP - 1}V${HEIGHT - 1}z` : ''))
    .join('');
  // Earlier changes than those that the status keeps are not known.
  const unknown = knownSince && knownSince > start ? Math.min(HOURS * STEP, ((knownSince - start) / HOUR) * STEP) : 0;
  const since = Math.max(0, Math.min(HOURS * STEP, (((knownSince ?? created ?? start) - start) / HOUR) * STEP));
  const said = `${count}${unknown ? ' known' : ''} in 24 h`;
  return html`<span class="spark"><svg viewBox="0 0 ${HOURS * STEP} ${HEIGHT}" aria-hidden="true">
      ${unknown ? svg`<path class="unknown" d=${hatching(unknown)}></path>` : nothing}
      <path class="base" d="M${since},${HEIGHT - 0.5}H${HOURS * STEP}"></path><path class="bars" d=${bars}></path></svg> ${count}<span class="unseen"> ${said.replace(/^\d+ /, '')}</span></span>`;
}

/** Slanted lines up to a width. */
function hatching(width) {
  let lines = '';
  for (let x = 0; x + 5 <= width; x += 5) lines += `M${x},${HEIGHT - 1}l5,-8`;
  return lines;
}
