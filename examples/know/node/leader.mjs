// Says when this pod begins to lead, and when it stops.
//
//   node leader.mjs [DIRECTORY]      DIRECTORY is where the downwardAPI volume is mounted; default: /etc/podinfo
import { readFileSync, realpathSync } from 'node:fs';

const directory = process.argv[2] ?? '/etc/podinfo';

// Returns the term if this pod leads, else null.
function leadingTerm() {
  for (let attempt = 0; attempt < 3; attempt++) {
    try {
      // Kubelet never writes to a file that can be seen. It writes both files to a new directory, lets the link ..data point
      // to it, and deletes the old directory. So follow the link once, and read both files there: they belong together.
      const version = realpathSync(`${directory}/..data`);
      const role = readFileSync(`${version}/role`, 'utf8');
      const term = readFileSync(`${version}/term`, 'utf8');
      return role === 'leader' && /^[0-9]+$/.test(term) ? BigInt(term) : null;
    } catch {
      // Kubelet has just deleted that directory, and there is a newer one; or there are no such files.
    }
  }
  return null;
}

// Put your program here: begin with this term, or stop at once if it is null.
function changed(term) {
  console.log(term === null ? 'not leading' : `leading in term ${term}`);
}

let before;
function look() {
  const term = leadingTerm();
  if (term !== before) changed(term);
  before = term;
}

look();
setInterval(look, 100);
// Kubelet does not change the files of a pod that is being deleted: SIGTERM is how it learns that it leads no longer.
process.on('SIGTERM', () => {
  changed(null);
  process.exit();
});
