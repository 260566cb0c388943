// Who led when, to scale: a lane for each pod, and one for the time without a leader.

import { html, nothing } from './lit-html/lit-html.js';
import { draw, state } from './state.js';
import { HOUR, RANGES, at, duration, lasting, shortly } from './words.js';

/** How far the timeline goes back, in hours: a day, unless the election is younger than an hour. */
export const reach = ({ created }) => state.hours ?? (created > Date.now() - HOUR ? 1 : 24);

/** How many pods have a lane. */
const LANES = 12;

export function timeline(one) {
  const now = Date.now();
  const hours = reach(one);
  const start = now - hours * HOUR;
  const place = moment => (100 * Math.max(0, Math.min(now, moment) - start)) / (now - start);
  const spans = one.spans.filter(({ until }) => (until ?? now) > start);
  const bar = ({ from, until }, name, title) => {
    const left = place(from);
    return html`<span class="bar ${name}" title=${title} .style=${`left: min(${left}%, 100% - 3px); width: ${place(until ?? now) - left}%`}></span>`;
  };
  const leaders = [...new Set(spans.map(({ leader }) => leader).filter(Boolean))];
  const others = one.outlook.candidates.map(({ name }) => name).filter(name => !leaders.includes(name));
  const names = [...leaders.slice(-LANES), ...others.slice(0, Math.max(0, LANES - leaders.length))].sort(new Intl.Collator(undefined, { numeric: true }).compare);
  const left = leaders.length + others.length - names.length;
  const isHere = name => one.outlook.candidates.some(pod => pod.name === name) || name === one.cluster;
  const past = before(one, start);
  return html`<div class="range"><h2 id="terms">Timeline</h2>${ranges(hours)}</div>
    <div class="lanes" role="img" aria-label="${told(spans, start, past)}">
      ${names.map(name => html`<div class="lane"><span class="pod-name">${name}${isHere(name) ? nothing : html` <small>gone</small>`}</span>
        <span class="track">${blanks(past, start, bar)}${spans.filter(({ leader }) => leader === name).map(span => bar(span, `leads${name === one.leader && !span.until ? ' now' : ''}`, `${name} in term ${span.term} for ${lasting(duration(span))}`))}</span></div>`)}
      <div class="lane"><span class="pod-name none">no leader</span>
        <span class="track">${blanks(past, start, bar)}${spans.filter(({ leader }) => !leader).map(span => bar(span, 'gap', `no leader for ${lasting(duration(span))}`))}</span></div>
      <div class="lane axis"><span></span><span class="ticks">${ticks(now, start, hours).map(({ moment, word, edge }) => html`<span class=${edge} .style=${`left: ${place(moment)}%`}>${word}</span>`)}</span></div>
    </div>
    <p class="legend"><span><span class="swatch leads"></span> leads</span> <span><span class="swatch gap"></span> no leader, or the leader is changing</span>
      ${past.unknown ? html`<span><span class="swatch unknown"></span> not known</span>` : nothing}</p>
    <p class="hint unknown-said">${past.unknown ? html`Before ${at(past.unknown)}, it is not known which pod led: the status keeps the last ten changes, and no earlier one is left.` : nothing}
      ${past.created ? html`The election was created on ${at(past.created)}.` : nothing}
      ${left ? `${left} more pods have no lane.` : nothing}</p>`;
}

/** Until when nothing is known, and until when the election did not exist; null: at no time that is drawn. */
function before({ knownSince, created, spans }, start) {
  const first = spans[0]?.from;
  const isOld = knownSince ?? (first && created && first < created ? first : null);
  const unknown = isOld && isOld > start ? isOld : null;
  const bound = unknown ? (created && created < unknown ? created : null) : created;
  return { unknown, created: bound && bound > start ? bound : null };
}

const blanks = ({ unknown, created }, start, bar) => [
  unknown ? bar({ from: created ?? start, until: unknown }, 'unknown', 'not known') : nothing,
  created ? bar({ from: start, until: created }, 'before', 'the election did not exist') : nothing,
];

function ranges(chosen) {
  const choose = hours => () => {
    state.hours = hours;
    draw();
  };
  return html`<fieldset class="ranges"><legend class="unseen">How far back</legend>${RANGES.map(
    ({ hours, title }) => html`<label><input type="radio" name="range" value=${hours} .checked=${chosen === hours} @change=${choose(hours)}><span>${title}</span></label>`,
  )}</fieldset>`;
}

/** The picture in words. */
function told(spans, start, { unknown }) {
  const one = span => (span.leader ? `${span.leader} in term ${span.term} for ${lasting(duration(span))}` : `no leader for ${lasting(duration(span))}`);
  const words = spans.map(one).join('; ') || 'no change';
  return `From ${at(start)} to now: ${unknown ? `not known until ${at(unknown)}; ` : ''}${words}`;
}

/** Moments of the axis, in the reader's time zone. */
function ticks(now, start, hours) {
  const step = { 1: HOUR / 4, 24: 6 * HOUR, 168: 24 * HOUR }[hours];
  const zone = new Date(now).getTimezoneOffset() * 60_000;
  const found = [];
  for (let moment = Math.ceil((start - zone) / step) * step + zone; moment < now - step / 3; moment += step) {
    const isEarly = moment - start < (now - start) / 12;
    found.push({ moment, word: shortly(moment, hours), edge: isEarly ? 'first' : '' });
  }
  return [...found, { moment: now, word: 'now', edge: 'last' }];
}
