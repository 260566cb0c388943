// Times and states in words.

/** Returns how long something lasts, from milliseconds: 72 ms, 4.1 s, 5 m 12 s, 3 h, 12 d. */
export function lasting(milliseconds) {
  const all = Math.max(0, milliseconds);
  if (all < 1000) return `${Math.round(all)} ms`;
  const seconds = all / 1000;
  if (seconds < 10) return `${Number.isInteger(seconds) ? seconds : seconds.toFixed(1)} s`;
  const two = (first, of, second, and) => (second ? `${first} ${of} ${second} ${and}` : `${first} ${of}`);
  const whole = Math.floor(seconds);
  if (whole < 120) return `${whole} s`;
  if (whole < 7200) return two(Math.floor(whole / 60), 'm', whole < 600 ? whole % 60 : 0, 's');
  if (whole < 172_800) return two(Math.floor(whole / 3600), 'h', whole < 36_000 ? Math.floor((whole % 3600) / 60) : 0, 'm');
  return two(Math.floor(whole / 86_400), 'd', whole < 864_000 ? Math.floor((whole % 86_400) / 3600) : 0, 'h');
}

/** Returns the time since a moment. Two machines' clocks are involved, so it is never negative. */
export const since = moment => lasting(Math.max(1000, Math.floor((Date.now() - moment) / 1000) * 1000));

/** Returns a moment in the reader's own time zone. */
export const at = moment => new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' }).format(moment);

/** Returns a moment of the axis of so many hours in a few characters. */
export function shortly(moment, hours) {
  const style = hours > 24 ? { weekday: 'short', day: 'numeric' } : { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' };
  return new Intl.DateTimeFormat(undefined, style).format(moment);
}

/** An hour in milliseconds. */
export const HOUR = 3_600_000;

/** How far a timeline may go back. */
export const RANGES = [
  { hours: 1, title: '1\u00a0h' },
  { hours: 24, title: '24\u00a0h' },
  { hours: 168, title: '7\u00a0d' },
];

/** The length of a span, in milliseconds. */
export const duration = ({ from, until, took }) => took ?? Math.max(0, (until ?? Date.now()) - from);

/** Returns 1st, 2nd, 3rd, 11th. */
export function ordinal(number) {
  const ending = { one: 'st', two: 'nd', few: 'rd', other: 'th' };
  return `${number}${ending[new Intl.PluralRules('en', { type: 'ordinal' }).select(number)]}`;
}

/** A state's sign and word, so that no colour is needed. */
export const HEALTH = {
  stalled: { sign: '✖', word: 'needs a change' },
  unwell: { sign: '▲', word: 'unhealthy' },
  unknown: { sign: '?', word: 'unknown yet' },
  paused: { sign: '‖', word: 'paused' },
  well: { sign: '✔', word: 'healthy' },
};
