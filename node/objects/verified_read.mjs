/** Verified reads: bytes under their SHA-256, hashed again while they are read. */

import { createHash } from "node:crypto";
import { StoreCorrupt } from "../model/errors.mjs";
import * as files from "./files.mjs";

/** @param {string} sha256 */
export function objectKey(sha256) {
  if (!/^[0-9a-f]{64}$/.test(sha256)) throw new TypeError(`not a SHA-256 in hex: ${sha256.slice(0, 80)}`);
  return `sha256/${sha256.slice(0, 2)}/${sha256.slice(2)}`;
}

/** Hashes what it reads; at the end the hash is checked. */
export class CheckedReader {
  /** @param {files.Reader} inner @param {string} sha256 */
  constructor(inner, sha256) {
    this.inner = inner;
    this.expected = sha256;
    this.hash = createHash("sha256");
    this.ended = false;
  }

  /** @param {number} size @returns {Buffer} */
  read(size) {
    const data = this.inner.read(size);
    if (data.length) this.hash.update(data);
    else if (size > 0 && !this.ended) {
      this.ended = true;
      if (this.hash.digest("hex") !== this.expected) throw new StoreCorrupt(`Object sha256:${this.expected} holds other bytes.`);
    }
    return data;
  }

  close() {
    this.inner.close();
  }
}

/** @param {string} sha256 */
export const missing = (sha256) => new StoreCorrupt(`Object sha256:${sha256} is not in the object store.`);
