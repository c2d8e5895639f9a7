/** The object store: immutable bytes under their SHA-256, in a folder of this machine. */

import { createHash } from "node:crypto";
import { StoreCorrupt, isCode, isSystemError } from "../model/errors.mjs";
import * as files from "./files.mjs";
import { CheckedReader, missing, objectKey } from "./verified_read.mjs";

const CHUNK_BYTES = 1024 * 1024;
const CHECKPOINT_BYTES = 4 * 1024 * 1024;
const PARTIALS_PER_KEY_MAX = 4;

/** @param {CheckedReader} reader */
function readThrough(reader) {
  try {
    while (reader.read(CHUNK_BYTES).length);
  } finally {
    reader.close();
  }
}

/**
 *     <root>/sha256/ab/cdef…        finished: complete and durable since before it had this name
 *     <root>/tmp/<id>               being written, by one process only
 *     <root>/partial/<key>/<id>.<n> the first n bytes of a temp file are durable: to resume from
 */
export class LocalObjects {
  /** @param {string} root @param {import("../types.js").Ids} ids */
  constructor(root, ids) {
    this.root = root.replace(/\/+$/, "");
    this.ids = ids;
    this.made = new Set();
  }

  /** @param {string | null} [resumeKey] @returns {[LocalStaging, number]} */
  stage(resumeKey = null) {
    const staging = new LocalStaging(this, this.ids.new(), resumeKey);
    try {
      return [staging, resumeKey ? this.#taken(resumeKey, staging) : 0];
    } catch (error) {
      staging.abort();
      throw error;
    }
  }

  /** @param {string} sha256 */
  has(sha256) {
    return files.exists(this.path(objectKey(sha256)));
  }

  /** @param {string} sha256 @returns {number | null} null if it is not there */
  sizeOf(sha256) {
    return this.has(sha256) ? files.size(this.path(objectKey(sha256))) : null;
  }

  /** @param {string} sha256 */
  open(sha256) {
    try {
      return new CheckedReader(files.open(this.path(objectKey(sha256))), sha256);
    } catch (error) {
      if (isCode(error, "ENOENT")) throw missing(sha256);
      throw error;
    }
  }

  /** @param {string} sha256 */
  localPath(sha256) {
    return this.has(sha256) ? this.path(objectKey(sha256)) : null;
  }

  /** @param {string} name */
  path(name) {
    return `${this.root}/${name}`;
  }

  /** The folder's path; made durable once for each process. @param {string} name */
  folder(name) {
    const path = this.path(name);
    if (!this.made.has(path)) {
      files.makeDirs(path);
      this.made.add(path);
    }
    return path;
  }

  /** @param {string} name */
  discard(name) {
    files.unlessGone(() => files.unlink(this.path(name)));
  }

  /** Give a durable temp file its final name, durably. An equal one may stand there already. @param {string} temp @param {string} sha256 */
  land(temp, sha256) {
    const key = objectKey(sha256);
    const folder = this.folder(key.slice(0, key.lastIndexOf("/")));
    try {
      readThrough(new CheckedReader(files.open(this.path(key)), sha256));
      files.touch(this.path(key)); // fresh again: collecting spares it
    } catch (error) {
      if (!isSystemError(error) && !(error instanceof StoreCorrupt)) throw error;
      files.rename(this.path(temp), this.path(key)); // it is not there, or damaged
    }
    files.fsyncDir(folder);
    this.discard(temp);
  }

  /** @param {string} folder */
  names(folder) {
    try {
      return files.list(this.path(folder));
    } catch (error) {
      if (isCode(error, "ENOENT")) return [];
      throw error;
    }
  }

  /** Copy the longest partial into the new object; all that were seen are then done with. @param {string} resumeKey @param {LocalStaging} staging */
  #taken(resumeKey, staging) {
    const folder = `partial/${partialKey(resumeKey)}`;
    const found = this.names(folder).sort((a, b) => lengthIn(b) - lengthIn(a));
    const longest = found[0];
    const copied = longest ? this.#copied(`${folder}/${longest}`, lengthIn(longest), staging) : 0;
    if (copied) staging.mark();
    for (const name of found) this.discard(`${folder}/${name}`);
    return copied;
  }

  /** @param {string} name @param {number} length @param {LocalStaging} staging */
  #copied(name, length, staging) {
    let reader;
    try {
      if (files.size(this.path(name)) < length) return 0; // damaged: begin again
      reader = files.open(this.path(name));
    } catch (error) {
      if (isCode(error, "ENOENT")) return 0; // another attempt was quicker
      throw error;
    }
    try {
      for (let left = length; left; ) {
        const data = reader.read(Math.min(left, CHUNK_BYTES));
        staging.write(data);
        left -= data.length;
      }
    } finally {
      reader.close();
    }
    return length;
  }

  /** @param {string} temp @param {string} key @param {string} name @returns {string | null} */
  markPartial(temp, key, name) {
    const folder = `partial/${key}`;
    try {
      this.folder(folder);
      files.link(this.path(temp), this.path(`${folder}/${name}`));
    } catch (error) {
      if (!isSystemError(error)) throw error;
      this.made.delete(this.path(folder)); // resuming is a convenience
      return null;
    }
    for (const old of this.names(folder).sort((a, b) => lengthIn(a) - lengthIn(b)).slice(0, -PARTIALS_PER_KEY_MAX)) this.discard(`${folder}/${old}`);
    return `${folder}/${name}`;
  }
}

/** @param {string} resumeKey */
const partialKey = (resumeKey) => createHash("sha256").update(resumeKey).digest("hex").slice(0, 32);

/** @param {string} name */
function lengthIn(name) {
  const digits = name.slice(name.lastIndexOf(".") + 1);
  return /^[0-9]+$/.test(digits) ? Number(digits) : 0;
}

/** One object on its way in. Its temp file has one writer, ever. */
class LocalStaging {
  /** @param {LocalObjects} objects @param {string} unique @param {string | null} resumeKey */
  constructor(objects, unique, resumeKey) {
    this.objects = objects;
    this.unique = unique;
    this.key = resumeKey ? partialKey(resumeKey) : null;
    this.temp = `tmp/${unique}`;
    objects.folder("tmp");
    this.writer = files.create(objects.path(this.temp));
    this.hash = createHash("sha256");
    this.size = 0;
    /** @type {string | null} */
    this.checkpoint = null;
    this.checkpointSize = 0;
    this.isOpen = true;
  }

  /** @param {Uint8Array} data */
  write(data) {
    this.writer.write(data);
    this.hash.update(data);
    this.size += data.length;
    if (this.key && this.size - this.checkpointSize >= CHECKPOINT_BYTES) this.mark();
  }

  /** @returns {[string, number]} */
  commit() {
    const sha256 = this.hash.digest("hex");
    this.writer.fsync();
    this.#close();
    this.objects.land(this.temp, sha256);
    this.#dropCheckpoint();
    return [sha256, this.size];
  }

  keepPartial() {
    try {
      if (this.isOpen && this.key && this.size > this.checkpointSize) this.mark();
    } finally {
      this.#close();
      this.objects.discard(this.temp);
    }
  }

  abort() {
    this.#close();
    this.objects.discard(this.temp);
    this.#dropCheckpoint();
  }

  /** From here a later attempt can go on: the bytes are durable before the name says so. */
  mark() {
    this.writer.fsync();
    const earlier = this.checkpoint;
    this.checkpoint = this.objects.markPartial(this.temp, /** @type {string} */ (this.key), `${this.unique}.${this.size}`);
    this.checkpointSize = this.size;
    if (earlier) this.objects.discard(earlier);
  }

  #dropCheckpoint() {
    if (this.checkpoint) this.objects.discard(this.checkpoint);
    this.checkpoint = null;
  }

  #close() {
    if (this.isOpen) this.writer.close();
    this.isOpen = false;
  }
}
