/** The real disk, synchronous: temp, fsync, rename, fsync of the folder. */

import * as fs from "node:fs";
import { dirname, resolve } from "node:path";
import { isCode } from "../model/errors.mjs";
import { byPoints } from "../model/wording.mjs";

const FILE_MODE = 0o644;
const FOLDER_MODE = 0o755;

export class Writer {
  /** @param {number} descriptor */
  constructor(descriptor) {
    this.descriptor = descriptor;
  }

  /** @param {Uint8Array | string} given */
  write(given) {
    const data = typeof given === "string" ? Buffer.from(given) : given;
    for (let at = 0; at < data.length; ) at += fs.writeSync(this.descriptor, data, at, data.length - at);
  }

  fsync() {
    fs.fsyncSync(this.descriptor);
  }

  close() {
    if (this.descriptor >= 0) fs.closeSync(this.descriptor);
    this.descriptor = -1;
  }
}

/** Reads at its own place, so that several readers share one file. */
export class Reader {
  /** @param {number} descriptor @param {boolean} [owned] */
  constructor(descriptor, owned = true) {
    this.descriptor = descriptor;
    this.owned = owned;
    this.at = 0;
    this.buffer = Buffer.alloc(0);
  }

  /** The next bytes, good until the next call: a large file must not leave a trail of buffers. @param {number} size @returns {Buffer} empty at the end */
  read(size) {
    if (this.buffer.length < size) this.buffer = Buffer.allocUnsafeSlow(size);
    const got = fs.readSync(this.descriptor, this.buffer, 0, size, this.at);
    this.at += got;
    return this.buffer.subarray(0, got);
  }

  close() {
    if (this.owned && this.descriptor >= 0) fs.closeSync(this.descriptor);
    this.descriptor = -1;
  }
}

/** @param {string} path */
export function create(path) {
  return new Writer(fs.openSync(path, fs.constants.O_WRONLY | fs.constants.O_CREAT | fs.constants.O_EXCL, FILE_MODE));
}

/** @param {string} path */
export const open = (path) => new Reader(fs.openSync(path, fs.constants.O_RDONLY));

/** Also a link that leads nowhere. @param {string} path */
export function exists(path) {
  try {
    fs.lstatSync(path);
    return true;
  } catch (error) {
    if (isCode(error, "ENOENT", "ENOTDIR")) return false;
    throw error;
  }
}

/** @param {string} path */
export const size = (path) => fs.statSync(path).size;
/** @param {string} path */
export const touch = (path) => fs.utimesSync(path, new Date(), new Date());
/** @param {string} path */
export const list = (path) => fs.readdirSync(path).sort(byPoints);
/** @param {string} path */
export const mkdir = (path) => fs.mkdirSync(path, FOLDER_MODE);
export const rename = fs.renameSync;
export const link = fs.linkSync;
export const symlink = fs.symlinkSync;
export const unlink = fs.unlinkSync;
export const rmdir = fs.rmdirSync;
/** @param {string} path */
export const readlink = (path) => fs.readlinkSync(path, "utf8");

const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK } = fs.constants;
const LINKS_MAX = 40;

/** What stands behind a link below a folder, outside of it. */
export class OutsideFolder extends Error {}

/**
 * A descriptor of what stands below a folder, and the status of the folder that it stands in.
 *
 * The way is walked part by part from a handle, so that a rename meanwhile can't lead it elsewhere. A link may lead
 * to another place below the folder: it is read, and its parts are walked in the same way.
 * @param {string} folder @param {string} relpath @param {number} [flags] @returns {{descriptor: number, around: fs.Stats}}
 */
export function openBelow(folder, relpath, flags = O_RDONLY) {
  const stack = [fs.openSync(folder, O_RDONLY | O_DIRECTORY)];
  const paths = [folder]; // where there is no /proc, the ways by name
  const parts = relpath.split("/").reverse();
  const base = folder.replace(/\/+$/, "");
  let links = 0;
  const up = () => {
    fs.closeSync(/** @type {number} */ (stack.pop()));
    paths.pop();
  };
  try {
    while (parts.length) {
      const part = /** @type {string} */ (parts.pop());
      if (part === "" || part === ".") continue;
      if (part === "..") {
        if (stack.length === 1) throw new OutsideFolder(relpath);
        up();
        continue;
      }
      const at = HANDLES ? `/proc/self/fd/${stack.at(-1)}/${part}` : `${paths.at(-1)}/${part}`;
      let found;
      try {
        found = fs.openSync(at, (parts.length ? O_RDONLY | O_DIRECTORY : flags) | O_NOFOLLOW | O_NONBLOCK);
      } catch (error) {
        const target = isCode(error, "ELOOP", "ENOTDIR", "EMLINK") ? linkTarget(at) : null;
        links += 1;
        if (target === null || links > LINKS_MAX) throw error;
        if (target.startsWith("/")) {
          if (!target.startsWith(`${base}/`)) throw new OutsideFolder(relpath);
          while (stack.length > 1) up();
        }
        parts.push(...(target.startsWith("/") ? target.slice(base.length) : target).split("/").reverse());
        continue;
      }
      if (!parts.length) return { descriptor: found, around: fs.fstatSync(/** @type {number} */ (stack.at(-1))) };
      stack.push(found);
      paths.push(`${paths.at(-1)}/${part}`);
    }
    throw Object.assign(new Error("EISDIR: illegal operation on a directory"), { code: "EISDIR", errno: -21, syscall: "open" });
  } finally {
    for (const each of stack) fs.closeSync(each);
  }
}

/** Node.js opens nothing relative to a handle; Linux shows handles as folders. */
const HANDLES = fs.existsSync("/proc/self/fd");

/** @param {string} path @returns {string | null} null: it is no link */
function linkTarget(path) {
  try {
    return fs.readlinkSync(path, "utf8");
  } catch {
    return null;
  }
}

/** @param {string} path */
export const isLink = (path) => fs.lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() ?? false;

/** @param {string} path */
function isFolder(path) {
  return fs.statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
}

/** @param {string} path */
export function fsyncDir(path) {
  const descriptor = fs.openSync(path || ".", fs.constants.O_RDONLY | fs.constants.O_DIRECTORY);
  try {
    fs.fsyncSync(descriptor);
  } catch (error) {
    if (!isCode(error, "EINVAL")) throw error; // some file systems have no notion of it
  } finally {
    fs.closeSync(descriptor);
  }
}

/** Folders with their parents, durably. @param {string} path */
export function makeDirs(path) {
  const missing = [];
  let folder = resolve(path);
  for (; !isFolder(folder); folder = dirname(folder)) missing.push(folder);
  try {
    fsyncDir(dirname(folder)); // the process that made it may have died before its entry was durable
  } catch (error) {
    if (!isCode(error, "EACCES", "EPERM")) throw error;
  }
  for (const each of missing.reverse()) {
    try {
      mkdir(each);
    } catch (error) {
      if (!isCode(error, "EEXIST") || !isFolder(each)) throw error;
    }
    fsyncDir(dirname(each));
  }
}

/** Do it, unless it is gone. @param {() => void} work */
export function unlessGone(work) {
  try {
    work();
    return true;
  } catch (error) {
    if (isCode(error, "ENOENT")) return false;
    throw error;
  }
}

/** A new file in the place of an older one. @param {string} path */
export function fresh(path) {
  unlessGone(() => unlink(path));
  return create(path);
}

/** Remove a file, a link or a folder with all that is in it; links are not followed. @param {string} path */
export function removeTree(path) {
  fs.rmSync(path, { recursive: true, force: true });
}
