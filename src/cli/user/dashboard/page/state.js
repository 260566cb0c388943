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
};

let page = () => {};

/** Says how the page is drawn. */
export function drawBy(how) {
  page = how;
}

export function draw() {
  page();
}
