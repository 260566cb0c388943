// Says when this pod begins to lead, and when it stops: by asking `lictor observe`, or another leader-elector sidecar.
//
//   node leader.mjs [URL [NAME]]      URL: default http://localhost:4040; NAME: this pod's, default the host's name
import { hostname } from 'node:os';

const url = process.argv[2] ?? 'http://localhost:4040';
const name = process.argv[3] ?? hostname();

// Returns whether this pod leads. Whoever gets no answer does not lead.
async function leads() {
  try {
    const answer = await fetch(url, { signal: AbortSignal.timeout(2000) });
    return answer.ok && (await answer.json()).name === name;
  } catch {
    return false;
  }
}

// Put your program here: begin, or stop at once.
function changed(leads) {
  console.log(leads ? 'leading' : 'not leading');
}

let before;
async function look() {
  const now = await leads();
  if (now !== before) changed(now);
  before = now;
  setTimeout(look, 1000);
}

process.on('SIGTERM', () => {
  changed(false);
  process.exit();
});
look();
