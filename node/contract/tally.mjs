/** Counts what is wrong and what was there before, in bounded memory. */

import { createHash } from "node:crypto";
import { Reader, Writer } from "../objects/files.mjs";
import { namelessFile } from "../objects/objects.mjs";

export const SAMPLES_MAX = 5;
const UNIQUE_IN_MEMORY_MAX = 500_000;
const BUCKETS = 64;
const DIGEST_BYTES = 16;

/** A count with a bounded memory of where. */
export class Tally {
  constructor() {
    this.count = 0;
    /** @type {string[]} */
    this.places = [];
  }

  /** @param {string} place */
  add(place) {
    this.count += 1;
    if (this.places.length < SAMPLES_MAX) this.places.push(place);
  }

  /** «: line 7, line 9, and 12 more», or nothing. */
  where() {
    if (!this.places.length) return "";
    const more = this.count - this.places.length;
    return `: ${this.places.join(", ")}${more ? ` and ${more} more` : ""}`;
  }
}

/** Which values came before, in bounded memory: past the bound hashes go to nameless files. */
export class Distinct {
  constructor() {
    /** @type {Set<string>} */
    this.seen = new Set();
    /** @type {Writer[]} */
    this.buckets = [];
    this.row = 0;
    this.tally = new Tally();
  }

  /** @param {string} key @param {string} place */
  add(key, place) {
    const digest = createHash("sha256").update(key).digest().subarray(0, DIGEST_BYTES);
    this.row += 1;
    if (this.buckets.length) return this.#spill(digest, this.row);
    const text = digest.toString("latin1");
    if (this.seen.has(text)) return this.tally.add(place);
    this.seen.add(text);
    if (this.seen.size > UNIQUE_IN_MEMORY_MAX) {
      this.buckets = Array.from({ length: BUCKETS }, () => new Writer(namelessFile()));
      for (const known of this.seen) this.#spill(Buffer.from(known, "latin1"), 0);
      this.seen = new Set();
    }
    return undefined;
  }

  /** @param {Buffer} digest @param {number} row */
  #spill(digest, row) {
    const record = Buffer.alloc(DIGEST_BYTES + 8);
    digest.copy(record);
    record.writeBigUInt64BE(BigInt(row), DIGEST_BYTES);
    /** @type {Writer} */ (this.buckets[/** @type {number} */ (digest[0]) % BUCKETS]).write(record);
  }

  /** The rows that repeat an earlier value. */
  duplicates() {
    let count = 0;
    /** @type {number[]} */
    let found = [];
    for (const bucket of this.buckets) {
      const reader = new Reader(bucket.descriptor, false);
      const seen = new Set();
      for (let record = reader.read(DIGEST_BYTES + 8); record.length; record = reader.read(DIGEST_BYTES + 8)) {
        const digest = record.subarray(0, DIGEST_BYTES).toString("latin1");
        if (seen.has(digest)) {
          count += 1;
          found = [...found, Number(record.readBigUInt64BE(DIGEST_BYTES))].sort((a, b) => a - b).slice(0, SAMPLES_MAX);
        }
        seen.add(digest);
      }
    }
    this.close();
    for (const row of found) this.tally.add(`row ${row}`);
    this.tally.count += count - found.length;
    return this.tally;
  }

  close() {
    for (const bucket of this.buckets) bucket.close();
    this.buckets = [];
  }
}
