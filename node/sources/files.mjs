/** Files in a folder of this machine, chosen by a pattern. Content decides, not times. */

import { createHash } from "node:crypto";
import * as fs from "node:fs";
import { join } from "node:path";
import { LimitExceeded, UpstreamUnavailable, strerror } from "../model/errors.mjs";
import { render } from "../model/templates.mjs";
import { quote, unquote } from "../model/urls.mjs";
import { repr, withoutPrefix } from "../model/wording.mjs";
import { OutsideFolder, Reader, openBelow } from "../objects/files.mjs";
import { breathe } from "../system.mjs";
import { Pattern, mediaType, placeFields, publishedPath, settled } from "./placement.mjs";

/** @typedef {import("../types.js").Found} Found */

const CHUNK_BYTES = 1024 * 1024;
const CHUNKS_A_TURN = 16; // then signals and timers have theirs
const ENTRIES_MAX = 1_000_000;
const DEPTH_MAX = 64;

export class FilesSource {
  /** @param {any} source @param {string} folder where it really is @param {any} limits @param {() => void} [tick] called between chunks */
  constructor(source, folder, limits, tick = () => {}) {
    this.source = source;
    this.folder = fs.existsSync(folder) ? fs.realpathSync(folder) : folder;
    const spelt = source.folder ?? "";
    // Published records hold no absolute path of this machine.
    const trimmed = spelt.replace(/\/+$/, "");
    const label = spelt.startsWith("/") ? trimmed.slice(trimmed.lastIndexOf("/") + 1) : withoutPrefix(spelt.replace(/^\/+|\/+$/g, ""), "./");
    this.base = label && label !== "." ? `file:${quote(label)}/` : "file:";
    this.limits = limits;
    this.tick = tick;
    /** How many names an inode has below the folder. @type {Map<number, number>} */
    this.names = new Map();
  }

  /** @param {import("../types.js").Window} window @returns {Promise<Found[]>} */
  async discover(window) {
    const pattern = render(this.source.pattern, placeFields(this.source, window));
    const wanted = new Pattern(pattern);
    if (!fs.statSync(this.folder, { throwIfNoEntry: false })?.isDirectory()) throw new UpstreamUnavailable(`There is no folder ${this.source.folder}.`, { transient: false });
    const relpaths = [];
    this.names.clear();
    for (const relpath of this.#walk("", 0, { count: 0 })) {
      if (!wanted.matches(relpath)) continue;
      relpaths.push(relpath);
      if (relpaths.length > this.limits.objects_per_run_max)
        throw new LimitExceeded(`More than ${this.limits.objects_per_run_max} files match ${repr(pattern)} (limits.objects_per_run_max).`);
    }
    return settled(this.source.id, relpaths.map((relpath) => this.#found(relpath, window)), this.limits);
  }

  /** Bytes from an offset. @param {Found} found @param {number} offset @returns {Promise<{offset: number, found: Found, chunks: AsyncIterable<Buffer>}>} */
  async open(found, offset) {
    const descriptor = this.#opened(unquote(withoutPrefix(found.uri, this.base)), true).descriptor;
    return { offset, found, chunks: chunksOf(descriptor, offset) };
  }

  /** @param {string} relpath @param {import("../types.js").Window} window @returns {Found} */
  #found(relpath, window) {
    const { descriptor, size } = this.#opened(relpath);
    const reader = new Reader(descriptor);
    const digest = createHash("sha256");
    let read = 0;
    try {
      if (size > this.limits.object_bytes_max) throw new LimitExceeded(`${relpath} has ${size} bytes, more than limits.object_bytes_max.`);
      for (let chunk = reader.read(CHUNK_BYTES); chunk.length; chunk = reader.read(CHUNK_BYTES)) {
        digest.update(chunk);
        read += chunk.length;
        this.tick();
      }
    } finally {
      reader.close();
    }
    return {
      uri: this.base + quote(relpath),
      path: publishedPath(this.source, window, relpath),
      media_type: mediaType(relpath),
      size: read,
      modified_ms: null,
      etag: null,
      checksum: `sha256:${digest.digest("hex")}`,
      version: null,
    };
  }

  /** A regular file below the folder; a link may lead to another place in it, not out of it. @param {string} relpath @param {boolean} [judged] by `discover`, and its bytes are compared */
  #opened(relpath, judged = false) {
    let descriptor;
    let around;
    try {
      ({ descriptor, around } = openBelow(this.folder, relpath));
    } catch (error) {
      if (error instanceof OutsideFolder) throw new UpstreamUnavailable(`${relpath} leads out of the folder ${this.source.folder}.`, { transient: false });
      throw new UpstreamUnavailable(`${relpath} can't be read: ${strerror(error)}.`, { transient: false });
    }
    const status = fs.fstatSync(descriptor);
    let problem = null;
    if (!status.isFile()) problem = "is not a regular file";
    else if (!judged && status.nlink > (this.names.get(status.ino) ?? 1) && madeByOthers(status, around)) problem = `is also a file outside of ${this.source.folder}`;
    if (problem !== null) {
      fs.closeSync(descriptor);
      throw new UpstreamUnavailable(`${relpath} ${problem}.`, { remedy: "Put a copy of the file there, or leave it out by the source's `pattern`.", transient: false });
    }
    return { descriptor, size: status.size };
  }

  /** @param {string} path */
  #count(path) {
    const inode = fs.lstatSync(path, { throwIfNoEntry: false })?.ino;
    if (inode !== undefined) this.names.set(inode, (this.names.get(inode) ?? 0) + 1);
  }

  /** @param {string} below @param {number} depth @param {{count: number}} seen @returns {Generator<string>} */
  *#walk(below, depth, seen) {
    if (depth > DEPTH_MAX) throw new LimitExceeded(`The folder ${this.source.folder} is nested deeper than ${DEPTH_MAX}.`);
    let entries;
    try {
      entries = fs.readdirSync(join(this.folder, below), { withFileTypes: true, encoding: "buffer" });
    } catch (error) {
      throw new UpstreamUnavailable(`The folder ${below || this.source.folder} can't be read: ${strerror(error)}.`, { transient: false });
    }
    entries.sort((a, b) => Buffer.compare(a.name, b.name));
    for (const entry of entries) {
      seen.count += 1;
      if (seen.count > ENTRIES_MAX) throw new LimitExceeded(`The folder ${this.source.folder} has more than ${ENTRIES_MAX} entries.`);
      const name = entry.name.toString("utf8");
      if (entry.isFile()) this.#count(`${join(this.folder, below)}/${name}`);
      if (entry.name[0] === 0x2e) continue;
      const relpath = below ? `${below}/${name}` : name;
      if (!Buffer.from(name, "utf8").equals(entry.name))
        throw new UpstreamUnavailable(`The file name ${relpath} is not UTF-8.`, { remedy: "Rename the file, or leave it out by the source's `pattern`.", transient: false });
      if (entry.isDirectory()) yield* this.#walk(relpath, depth + 1, seen);
      else if (!entry.isSymbolicLink() || !fs.statSync(join(this.folder, relpath), { throwIfNoEntry: false })?.isDirectory()) yield relpath;
    }
  }
}

/**
 * May the name have been made by an account that could not read the file? Then it is not ours to read. The owner of a
 * folder that is closed to others links what is the owner's own, as a published tree does.
 * @param {fs.Stats} file @param {fs.Stats} folder
 */
const madeByOthers = (file, folder) => file.uid !== folder.uid || (folder.mode & 0o022) !== 0;

/** @param {number} descriptor @param {number} offset @returns {AsyncGenerator<Buffer>} */
async function* chunksOf(descriptor, offset) {
  const reader = new Reader(descriptor);
  reader.at = offset;
  try {
    for (let chunk = reader.read(CHUNK_BYTES), turn = 1; chunk.length; chunk = reader.read(CHUNK_BYTES), turn += 1) {
      yield chunk;
      if (turn % CHUNKS_A_TURN === 0) await breathe();
    }
  } finally {
    reader.close();
  }
}
