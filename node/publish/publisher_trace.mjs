/** The publisher's trace: one schema-valid line for each operation. */

import { canonicalHashed, canonicalText, sha256Hex } from "../model/canonical.mjs";
import { requireValid } from "../model/schemas.mjs";
import { rfc3339 } from "../model/times.mjs";

export const MASKED = "[restricted]";

export class Trace {
  /** @param {(line: string) => void} sink @param {() => number} nowMs @param {string} runId @param {{publisher: string, dryRun: boolean, restricted: boolean}} about */
  constructor(sink, nowMs, runId, { publisher, dryRun, restricted }) {
    this.sink = sink;
    this.nowMs = nowMs;
    this.runId = runId;
    this.publisher = publisher;
    this.dryRun = dryRun;
    this.restricted = restricted;
    this.seq = 0;
  }

  /** @param {string} operation @param {string} outcome @param {Record<string, any>} [facts] */
  record(operation, outcome, facts = {}) {
    this.seq += 1;
    const path = this.restricted && facts.path !== undefined ? { path: MASKED } : {};
    const line = { trace: 1, seq: this.seq, at: rfc3339(this.nowMs()), run_id: this.runId, publisher: this.publisher, dry_run: this.dryRun, operation, outcome, ...facts, ...path };
    requireValid("publisher-trace", line);
    this.sink(`${canonicalText(line)}\n`);
  }
}

/** @param {any} payload */
export const payloadHash = (payload) => sha256Hex(canonicalHashed(payload));
