// A picture of an election's group: the Service, a card for each pod by its zone, and the way to the leader.

import { html, nothing, svg } from './lit-html/lit-html.js';
import { repeat } from './lit-html/directives/repeat.js';
import { ordinal } from './words.js';

/** How long a handover takes in the picture, in milliseconds. */
const MOVES = 700;

export function group(one) {
  const { candidates } = one.outlook;
  const places = grouped(one);
  return html`<div class="source">${one.service
      ? html`<small>Service</small><b>${one.service}</b>`
      : html`<b>Label of the leader</b><small>The election has no Service of its own.</small>`}</div>
    <div class="zones" role="group" aria-label="Pods">
      ${candidates.length || one.leader ? nothing : html`<p>The election selects no pod.</p>`}
      ${repeat(places, ([place]) => place, ([place, pods]) => html`<div class="zone"><h3>${place}</h3>
        <ul class="pods">${repeat(pods, ({ name }) => name, pod => card(pod, one))}</ul></div>`)}
      ${candidates.length ? html`<p class="hint">${byWhat(one)}</p>` : nothing}
    </div>
    <svg class="route" aria-hidden="true">${svg`<path></path>`}</svg>`;
}

const zone = (one, pod) => one.zones?.[pod.node];

/** The pods by place, each place and each pod where it was before, whoever leads. */
function grouped(one) {
  const places = new Map();
  const add = (place, pod) => places.set(place, [...(places.get(place) ?? []), pod]);
  for (const pod of one.outlook.candidates) {
    const own = zone(one, pod);
    add(own ? `Zone ${own}` : pod.node ? `Node ${pod.node}` : 'On no node yet', pod);
  }
  const isHere = one.outlook.candidates.some(({ name }) => name === one.leader);
  if (one.leader && !isHere) {
    add(one.cluster ? `Cluster ${one.cluster}` : 'Elsewhere', { name: one.leader, ready: true, why: 'leads, and is not a pod of this group' });
  }
  const order = new Intl.Collator(undefined, { numeric: true }).compare;
  for (const pods of places.values()) pods.sort((a, b) => order(a.name, b.name));
  return [...places].sort(([a], [b]) => order(a, b));
}

function byWhat(one) {
  if (!one.zones) return 'Grouped by node, because the zones of the nodes can’t be seen with your rights.';
  return one.outlook.candidates.some(pod => zone(one, pod)) ? nothing : 'Grouped by node, because the nodes name no zone.';
}

function card(pod, one) {
  const leads = pod.name === one.leader;
  const next = !leads && pod.name === one.outlook.next;
  return html`<li class="pod ${leads ? 'leads' : ''} ${leads || pod.rank ? '' : 'out'}" data-pod=${pod.name}>
    <p class="title"><b>${pod.name}</b>
      ${leads ? html`<span class="role">leader</span>` : nothing}
      ${!leads && pod.role === 'leader' ? html`<span class="mark">has the leader’s label</span>` : nothing}
      ${next ? html`<span class="next">next</span>` : nothing}
      ${pod.ready ? nothing : html`<span class="mark">not ready</span>`}</p>
    <p class="why">${pod.rank && !leads ? `${ordinal(pod.rank)}: ` : nothing}${pod.why}</p>
    ${zone(one, pod) ? html`<p class="node">${pod.node}</p>` : nothing}
  </li>`;
}

/** The leader as it was drawn last: of which election, and where. */
let last = null;

/** Draws the way from the Service to the leader, and moves the leader's mark from where it was. Called after the page is drawn. */
export function connect() {
  const picture = document.querySelector('.picture');
  const path = picture?.querySelector('.route path');
  if (!path) return (last = null);
  const [from, to] = [picture.querySelector('.source'), picture.querySelector('.pod.leads')];
  const same = last?.election === picture.dataset.election;
  path.classList.toggle('cut', !to);
  if (!to) {
    if (!same || last.width !== innerWidth) path.setAttribute('d', '');
    return;
  }
  const ground = picture.getBoundingClientRect();
  const [a, b] = [from.getBoundingClientRect(), to.getBoundingClientRect()];
  const y = b.top + b.height / 2 - ground.top;
  const end = b.left - ground.left;
  const isAbove = a.bottom <= b.top && a.right > b.left;
  const [x, begin] = isAbove
    ? [a.left + 12 - ground.left, `M${a.left + 12 - ground.left},${a.bottom - ground.top}`]
    : [(a.right + picture.querySelector('.zones').getBoundingClientRect().left) / 2 - ground.left, `M${a.right - ground.left},${a.top + a.height / 2 - ground.top}`];
  // The way moves with the leader alone. When the page is laid out anew, it is at its new place at once.
  const moves = same && last.width === innerWidth && last.pod !== to.dataset.pod;
  path.style.transition = moves ? '' : 'none';
  path.setAttribute('d', `${begin}${isAbove ? '' : `H${x}`}V${y}H${end - 2}m-8,-6l8,6l-8,6`);
  const mark = to.querySelector('.role');
  const place = mark.getBoundingClientRect();
  const here = { x: place.x + scrollX, y: place.y + scrollY };
  if (same && last.pod !== to.dataset.pod && !matchMedia('(prefers-reduced-motion: reduce)').matches) {
    const way = `translate(${last.x - here.x}px, ${last.y - here.y}px)`;
    mark.animate([{ transform: way }, { transform: 'none' }], { duration: MOVES, easing: 'ease-in-out' });
  }
  last = { election: picture.dataset.election, pod: to.dataset.pod, width: innerWidth, ...here };
}
