/** The no-op target. */

/** A target that shows nothing: for trying out a configuration, and for datasets kept inside. */
export class Noop {
  /** @param {string} name */
  constructor(name) {
    this.name = name;
  }

  /** @param {string} _datasetId @param {() => import("../../types.js").Head} head @returns {number | null} */
  project(_datasetId, head) {
    return head()?.[0].sequence ?? null;
  }
}
