// Each action is confirmed: a button of the page opens this dialog, which says what will happen.

import { html, nothing } from './lit-html/lit-html.js';
import { draw, state } from './state.js';
import { at } from './words.js';

/** The action to confirm; null: none. */
let asked = null;

/** Asks for confirmation of an action on the election as it is shown now. */
export function ask(action, { namespace, name, uid, term, leader, outlook }) {
  asked = { action, namespace, name, uid, term, leader, next: outlook.next, to: '', force: false, at: '', deadline: '', candidates: outlook.candidates, sending: false, failed: null, done: null };
  draw();
  const element = document.querySelector('dialog');
  element.showModal();
  element.querySelector('button.cancel').focus();
}

export function close() {
  if (!asked) return;
  asked = null;
  document.querySelector('dialog[open]')?.close();
  draw();
}

async function send(event) {
  event.preventDefault();
  const own = asked;
  // Time may have passed since the button was drawn.
  if (missing(own)) return draw();
  const [path, body] =
    own.action === 'switchover'
      ? ['switchover', {
          fromTerm: own.term,
          toPodName: own.to || null,
          force: own.force,
          notBeforeTime: own.at ? new Date(own.at).toISOString() : null,
          deadlineSeconds: own.deadline ? Number(own.deadline) : null,
        }]
      : ['pause', { paused: own.action === 'pause', uid: own.uid }];
  Object.assign(own, { sending: true, failed: null });
  draw();
  try {
    const answer = await fetch(`elections/${encodeURIComponent(own.namespace)}/${encodeURIComponent(own.name)}/${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    const told = await answer.json();
    if (answer.ok) own.done = told.done;
    else own.failed = told.error;
  } catch {
    own.failed = 'The command lictor dashboard does not answer, so it is unknown whether this was done. The page shows it once it is live again.';
  }
  own.sending = false;
  draw();
  if (asked === own) document.querySelector('dialog button.cancel')?.focus();
}

const TITLE = { switchover: 'Move the leader?', pause: 'Pause this election?', resume: 'Resume this election?' };
const BUTTON = { switchover: 'Move the leader', pause: 'Pause', resume: 'Resume' };

export function dialog() {
  return html`<dialog aria-labelledby="asked" @close=${close}>${asked ? content(asked) : nothing}</dialog>`;
}

/** Whether a pod can be chosen: it could lead now, or by force, or there is time to wait for it. */
const offered = (own, pod) => Boolean(pod.rank || own.deadline || (own.force && pod.byForce));

/** Says what to change before a Switchover can be requested; null: nothing. */
function missing(own) {
  if (own.action !== 'switchover') return null;
  const pod = own.candidates.find(({ name }) => name === own.to);
  if (own.force && !pod) return 'Choose a pod above: only a chosen pod can lead by force.';
  if (pod && !offered(own, pod)) return `${pod.name} can’t lead now. Choose another one, give it time to wait, or use force.`;
  if (own.at && new Date(own.at) <= new Date()) return 'That time has passed: choose a later one, or leave it out to begin at once.';
  return null;
}

function content(own) {
  const now = state.data?.election;
  const overtaken = !own.done && own.action === 'switchover' && now && now.term !== own.term;
  const about = html`<strong>${own.namespace}/${own.name}</strong>`;
  return html`<form method="dialog" @submit=${send}>
    <h2 id="asked">${TITLE[own.action]}</h2>
    ${own.done
      ? html`<p role="status">${own.done}</p>`
      : html`
          ${own.action === 'switchover' ? moving(own, about) : nothing}
          ${own.action === 'pause' ? html`<p>lictor keeps the lock of ${about}, but promotes and demotes no pod until it is resumed, even if the leader is lost.</p>` : nothing}
          ${own.action === 'resume' ? html`<p>lictor elects and demotes again in ${about}. If the leader is not healthy, another pod is elected at once.</p>` : nothing}
          ${overtaken ? html`<p class="failed" role="alert">The leader has changed since you opened this, and the term is now ${now.term}. Close this and open it again.</p>` : nothing}
        `}
    ${own.done ? nothing : obstacle(missing(own))}
    ${own.failed ? html`<p class="failed" role="alert">${own.failed}</p>` : nothing}
    <p class="buttons"><button type="button" class="cancel" @click=${close}>${own.done ? 'Close' : 'Cancel'}</button>
      ${own.done ? nothing : html`<button type="submit" class="sure" ?disabled=${own.sending || overtaken || missing(own)}>${BUTTON[own.action]}</button>`}</p>
  </form>`;
}

const obstacle = text => (text ? html`<p class="failed" role="status">${text}</p>` : nothing);

function moving(own, about) {
  const set = field => ({ target }) => {
    own[field] = target.type === 'checkbox' ? target.checked : target.value;
    draw();
  };
  const others = own.candidates.filter(pod => pod.name !== own.leader);
  return html`<p>Term ${own.term} of ${about} ends${own.at ? html` at ${at(new Date(own.at))} or later` : nothing}${own.leader ? html`, and <strong>${own.leader}</strong> is no longer the leader` : nothing}. If the
      leader changes before that, the leadership does not move.</p>
    <fieldset class="targets"><legend>Who should lead?</legend>
      <label><input type="radio" name="to" value="" ?checked=${!own.to} @change=${set('to')}> the next in the order${own.next ? ` (${own.next})` : ''}</label>
      ${others.map(
        pod => html`<label class=${offered(own, pod) ? '' : 'out'}><input type="radio" name="to" value=${pod.name} ?disabled=${!offered(own, pod)} @change=${set('to')}> ${pod.name}
          ${pod.rank ? nothing : html`<small>${pod.why}</small>`}</label>`,
      )}</fieldset>
    <details><summary>At another time, wait for a pod, or by force</summary>
      <label>Begin at <input type="datetime-local" name="at" .value=${own.at} @change=${set('at')}>
        <small>In the time zone of this browser. Empty: at once.</small></label>
      <label>Wait for up to <input type="number" name="deadline" min="1" max="2592000" inputmode="numeric" .value=${own.deadline} @input=${set('deadline')}> seconds
        <small>Until nothing blocks the Switchover, for example until a pod becomes ready. Empty: it does not wait, and fails at once.</small></label>
      <label><input type="checkbox" name="force" .checked=${own.force} @change=${set('force')}> By force
        <small>The chosen pod may lead even if it is not ready, lacks a condition or is on a cordoned node.</small></label>
    </details>`;
}
