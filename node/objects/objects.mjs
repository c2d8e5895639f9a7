/** Immutable bytes under their SHA-256: in a folder, or in nameless files that vanish with the process. */

import { createHash } from "node:crypto";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SecretInData, StoreCorrupt, isCode, isSystemError } from "../model/errors.mjs";
import { Redactor, partsOf } from "../model/redaction.mjs";
import * as files from "./files.mjs";

const CHUNK_BYTES = 1024 * 1024;
const CHECKPOINT_BYTES = 4 * 1024 * 1024;
const PARTIALS_PER_KEY_MAX = 4;
const NEEDLE_CHARS_MIN = 8;

/** @param {string} sha256 */
export function objectKey(sha256) {
  if (!/^[0-9a-f]{64}$/.test(sha256)) throw new TypeError(`not a SHA-256 in hex: ${sha256.slice(0, 80)}`);
  return `sha256/${sha256.slice(0, 2)}/${sha256.slice(2)}`;
}

/** Hashes what it reads; at the end the hash is checked. */
class CheckedReader {
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
const missing = (sha256) => new StoreCorrupt(`Object sha256:${sha256} is not in the object store.`);

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
    if (!files.unlessGone(() => files.touch(this.path(key)))) files.rename(this.path(temp), this.path(key));
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

/** The spellings of secrets that are looked for in data. @param {string[]} secrets */
function needles(secrets) {
  const long = secrets.flatMap((secret) => [...partsOf(secret)]).filter((part) => part.length >= NEEDLE_CHARS_MIN);
  return new Redactor(long).cores.filter((core) => core.length >= NEEDLE_CHARS_MIN).map((core) => Buffer.from(core));
}

/** Objects that take in none of the configuration's secrets. @template {{stage(key?: string | null): any}} T @param {T} objects @param {string[]} secrets @returns {T} */
export function watched(objects, secrets) {
  const wanted = needles(secrets);
  if (!wanted.length) return objects;
  const stage = objects.stage.bind(objects);
  const overlap = Math.max(1, ...wanted.map((one) => one.length)) - 1;
  objects.stage = (key) => {
    const [inner, offset] = stage(key);
    const [write, keepPartial] = [inner.write.bind(inner), inner.keepPartial.bind(inner)];
    let end = Buffer.alloc(0);
    let leaked = false;
    inner.write = (/** @type {Buffer} */ data) => {
      const seen = Buffer.concat([end, data]);
      if (wanted.some((needle) => seen.includes(needle))) {
        leaked = true;
        throw new SecretInData();
      }
      end = overlap ? seen.subarray(-overlap) : Buffer.alloc(0);
      write(data);
    };
    inner.keepPartial = () => (leaked ? inner.abort() : keepPartial());
    return [inner, offset];
  };
  return objects;
}
