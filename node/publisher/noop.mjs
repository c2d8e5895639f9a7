/** Dry-run: says what it would do. And a target that shows nothing. */

import { Publisher, hashed, isFetched, staged } from "./base.mjs";

export class NoopPublisher extends Publisher {
  /** @param {import("./trace.mjs").Trace} trace @param {{limits: any, leaks: (value: any) => boolean, scratch?: any, witness?: () => unknown}} about */
  constructor(trace, { scratch = null, witness = () => null, ...about }) {
    super(trace, { ...about, dryRun: true });
    this.scratch = scratch; // keeps bytes in files that vanish by themselves
    this.witness = witness; // observes what must not change
    this.before = witness();
  }

  /** @override @param {any} data @returns {Promise<[string, number]>} */
  async take(data) {
    if (isFetched(data)) return [data.sha256, data.size];
    return this.scratch ? staged(this.scratch, this.pieces(data)) : hashed(this.pieces(data));
  }

  /** @override */
  isUntouched() {
    return this.witness() === this.before;
  }
}
