/** Scratch objects: nameless files that vanish with the process. */

import { createHash } from "node:crypto";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as files from "./files.mjs";
import { CheckedReader, missing } from "./verified_read.mjs";

/** Objects that vanish with the process: what a dry-run fetches into. */
export class ScratchObjects {
  constructor() {
    /** @type {Map<string, number>} */
    this.kept = new Map();
  }

  /** @returns {[ScratchStaging, number]} */
  stage() {
    return [new ScratchStaging(this.kept), 0];
  }

  /** @param {string} sha256 */
  has(sha256) {
    return this.kept.has(sha256);
  }

  /** @param {string} sha256 */
  open(sha256) {
    const descriptor = this.kept.get(sha256);
    if (descriptor === undefined) throw missing(sha256);
    return new CheckedReader(new files.Reader(descriptor, false), sha256);
  }

  localPath() {
    return null;
  }
}

/** A file without a name, so that the visible tree never changes. @returns {number} */
export function namelessFile() {
  const folder = fs.mkdtempSync(join(tmpdir(), "kfm-"));
  const path = join(folder, "scratch");
  const descriptor = fs.openSync(path, "wx+", 0o600);
  fs.unlinkSync(path);
  fs.rmdirSync(folder);
  return descriptor;
}

class ScratchStaging {
  /** @param {Map<string, number>} kept */
  constructor(kept) {
    this.kept = kept;
    this.writer = new files.Writer(namelessFile());
    this.hash = createHash("sha256");
    this.size = 0;
  }

  /** @param {Uint8Array} data */
  write(data) {
    this.writer.write(data);
    this.hash.update(data);
    this.size += data.length;
  }

  /** @returns {[string, number]} */
  commit() {
    const sha256 = this.hash.digest("hex");
    if (this.kept.has(sha256)) this.writer.close();
    else this.kept.set(sha256, this.writer.descriptor);
    return [sha256, this.size];
  }

  keepPartial() {
    this.abort();
  }

  abort() {
    this.writer.close();
  }
}
