// What the page shows. All of it is drawn anew from this.

export const state = {
  /** The election that is shown; null: all of them. */
  shown: null,
  /** What the program sent last of what is shown; null: nothing yet. */
  data: null,
  /** Whether the program can be reached. */
  connected: true,
  filter: '',
  onlyProblems: false,
  /** The namespace whose elections are listed; empty: all. */
  namespace: '',
  /** The column by which the list is sorted, and whether backwards. */
  sort: { by: 'status', back: false },
  /** How far the timeline of an election goes back, in hours; null: as its age suggests. */
  hours: null,
};

let page = () => {};

/** Says how the page is drawn. */
export function drawBy(how) {
  page = how;
}

export function draw() {
  page();
}
