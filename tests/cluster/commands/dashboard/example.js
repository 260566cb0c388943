// A shop's elections, as the program would send them to the page. Takes the place of the page's stream, and opens arguments[0], a
// place on the page. `window.example` holds what is sent, and `window.send()` sends it again.
const [SECOND, MINUTE, HOUR, DAY] = [1000, 60_000, 3_600_000, 86_400_000];
// The same moment in each run, so that the pictures stay the same.
const now = Date.UTC(2026, 5, 11, 14, 30);
Date.now = () => now;
const WHY = { LeaderDeleted: 'the pod is being deleted', SwitchedOver: 'a Switchover asked for it', LeaderNotReady: 'the leader is not ready', Vacant: 'there was no leader', NodeLost: 'its node is lost' };

function past(entries, before = 0, first = null) {
  const changes = [];
  const spans = [];
  let leader = first;
  entries.forEach(([ago, next, reason, took], place) => {
    const at = now - ago;
    const term = before + place + 1;
    changes.unshift({ term, leader: next, previous: leader, reason, why: WHY[reason], at, took });
    if (leader) {
      if (spans.length) spans.at(-1).until = at - took;
      spans.push({ leader: null, term, from: at - took, until: at, took });
    }
    spans.push({ leader: next, term, from: at, until: null, took: null });
    leader = next;
  });
  return { changes, spans, handovers: changes.slice(0, first ? undefined : -1).filter(({ leader }) => leader).map(({ at }) => at), term: before + entries.length, leader, since: changes[0].at };
}

const row = (namespace, name, entries, more = {}) => {
  const { changes, spans, ...led } = past(entries, ...(more.earlier ?? []));
  return { namespace, name, uid: `${namespace}-${name}`, health: 'well', status: 'Led', message: null, paused: false, cluster: null, node: 'node-b1', address: null, candidates: '3/3', className: 'lease', knownSince: null, created: now - 40 * DAY, ...led, changes, spans, ...more };
};
const checkout = row('shop', 'checkout', [
  [19.2 * HOUR, 'checkout-7d9f-m8wzt', 'SwitchedOver', 61], [18.8 * HOUR, 'checkout-7d9f-p5rbn', 'LeaderDeleted', 83],
  [18 * HOUR, 'checkout-7d9f-k2xvq', 'SwitchedOver', 55], [17.3 * HOUR, 'checkout-7d9f-p5rbn', 'LeaderDeleted', 77], [16.4 * HOUR, 'checkout-7d9f-m8wzt', 'LeaderDeleted', 72], [11 * HOUR, 'checkout-7d9f-p5rbn', 'SwitchedOver', 64],
  [10.2 * HOUR, 'checkout-7d9f-k2xvq', 'LeaderNotReady', 9 * MINUTE], [5.3 * HOUR, 'checkout-7d9f-m8wzt', 'NodeLost', 1480], [4.6 * HOUR, 'checkout-7d9f-k2xvq', 'SwitchedOver', 52], [2.1 * HOUR, 'checkout-7d9f-p5rbn', 'SwitchedOver', 58],
], { earlier: [31, 'checkout-7d9f-k2xvq'], node: 'node-b1', knownSince: now - 19.2 * HOUR });
const elections = [
  row('billing', 'invoice-mailer', [[8 * DAY, 'invoice-mailer-1', 'Vacant', 30], [5 * HOUR, 'invoice-mailer-0', 'LeaderDeleted', 80], [2 * MINUTE, null, 'LeaderNotReady', 0]], {
    health: 'unwell', status: 'NoEligiblePod', leader: null, since: null, candidates: '0/2', message: 'none of the 2 pods can be elected: 2 are not ready',
  }),
  row('reports', 'month-end', [[30 * DAY, 'month-end-0', 'Vacant', 30]], { health: 'paused', status: 'Paused', paused: true, message: null, candidates: '1/1' }),
  row('billing', 'ledger-writer', [[12 * DAY, 'ledger-writer-0', 'Vacant', 30], [3 * DAY, 'west', 'SwitchedOver', 900]], { className: 'two-regions', cluster: 'west', candidates: '2/2' }),
  checkout,
  row('shop', 'price-importer', [[22 * HOUR, 'price-importer-a', 'Vacant', 30], [21 * HOUR, 'price-importer-b', 'LeaderDeleted', 60], [9 * HOUR, 'price-importer-a', 'SwitchedOver', 60]]),
  row('shop', 'stock-sync', [[6 * DAY, 'stock-sync-2', 'Vacant', 30]]),
  row('search', 'indexer', [23, 22, 20, 17, 14, 12, 7, 6.5, 6, 1].map((hours, place) => [hours * HOUR, `indexer-${place % 3}`, 'LeaderNotReady', 300]), { knownSince: now - 23 * HOUR }),
];
const about = { context: 'production', user: 'ada@shop.example', scope: 'in all namespaces' };
const pod = (name, node, rank, why, more = {}) => ({ name, role: '', ready: true, node, rank, byForce: true, why, ...more });
const condition = (type, reason, message) => ({ type, status: 'True', reason, message });
window.example = {
  list: { about, trouble: null, operators: { idle: {}, unknown: null }, elections },
  one: {
    about, trouble: null,
    election: {
      ...checkout, idle: null, service: 'checkout-leader', worst: 2,
      zones: { 'node-a1': 'eu-west-1a', 'node-b1': 'eu-west-1b', 'node-c1': 'eu-west-1c' },
      outlook: {
        leader: {}, term: checkout.term, now: `${checkout.leader} is healthy and remains the leader`, next: 'checkout-7d9f-k2xvq',
        ifLost: 'checkout-7d9f-k2xvq would be elected: it has been ready for longer', blocks: [], notVisible: [],
        candidates: [
          pod('checkout-7d9f-p5rbn', 'node-b1', 1, 'remains the leader', { role: 'leader' }),
          pod('checkout-7d9f-k2xvq', 'node-a1', 2, 'would be elected if the leader were lost'),
          pod('checkout-7d9f-m8wzt', 'node-c1', 3, 'after checkout-7d9f-k2xvq: it has been ready for longer'),
          pod('checkout-canary-zz41h', 'node-c1', null, 'not eligible: it has the annotation lictor.dev/never-leader', { byForce: false }),
        ],
      },
      conditions: [condition('Ready', 'Led', 'checkout-7d9f-p5rbn is the leader'), condition('Routed', 'LeaderReached', 'the Service reaches the leader')],
      cards: [
        { kind: 'service', title: 'checkout-leader', well: true, lines: [['ports', 'http 80'], ['route', 'it reaches the leader']] },
        { kind: 'probe', title: 'GET /healthz at port http', well: true, lines: [['every', '1 s, for at most 1 s'], ['fails after', '3 in a row without success']] },
        { kind: 'lock', title: 'checkout', well: true, lines: [['store', 'Lease shop/checkout; answers the operator'], ['session', 'none: a Lease is held until another record is written']] },
        { kind: 'workloads', title: '2 that follow the leader', well: true, lines: [['CronJob/send-receipts', 'Enabled'], ['Deployment/card-gateway', 'Enabled']] },
      ],
      events: [
        { at: now - 9 * MINUTE, warning: false, reason: 'LabelDrift', note: 'another program changed the labels of pod checkout-7d9f-m8wzt, and lictor corrects them' },
        { at: now - 25 * MINUTE, warning: true, reason: 'ProbeFails', note: 'pod checkout-7d9f-p5rbn did not answer its probe once' },
      ],
      switchovers: [], may: { switchover: true, pause: true },
    },
  },
};
let opened = null;
window.EventSource = class {
  constructor(path) {
    this.path = path;
    opened = this;
    setTimeout(window.send);
  }
  close() {}
};
window.send = () => opened.onmessage({ data: JSON.stringify(opened.path === 'live' ? window.example.list : window.example.one) });
location.hash = '#/-/-';
setTimeout(() => { location.hash = arguments[0]; });
