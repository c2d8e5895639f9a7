/** One version as a folder of files: built under a temporary name, durable, then given its name. */

import { createHash } from "node:crypto";
import { StoreCorrupt, TargetUnavailable, isCode } from "../../model/errors.mjs";
import { safePath } from "../../model/templates.mjs";
import { rfc3339 } from "../../model/times.mjs";
import { byPoints, partition, repr, rpartition, withoutPrefix } from "../../model/wording.mjs";
import * as files from "../../objects/files.mjs";
import { documents } from "../catalogue/documents.mjs";

/** @typedef {import("../../types.js").Promotion} Promotion */
/** @typedef {import("../../types.js").Manifest} Manifest */
/** @typedef {import("../../types.js").Asset} Asset */
/** @typedef {"versions" | "objects" | "never"} Linking */

const SHARED = ".shared"; // beside the versions: folders that several of them have
const OWN_NAME = /^[0-9]{8,}-[0-9A-Za-z-]+-[0-9]+$/; // of one of these
const TOP = ["data", "items", "catalogue"]; // folders of a version
const COPY_BYTES = 1024 * 1024;
const DOCUMENT_BYTES_MAX = 256 * 1024 * 1024;
const UNLINKABLE = ["EXDEV", "EMLINK", "EPERM", "EACCES", "ENOTSUP", "EOPNOTSUPP", "ENOENT"];

/** `00000012-0123456789ab`: in order of promotion, and telling what is inside. @param {Promotion} promotion */
export const versionName = (promotion) => nameOf(promotion.sequence, promotion.version_id);

/** @param {number} sequence @param {string} versionId */
const nameOf = (sequence, versionId) => `${String(sequence).padStart(8, "0")}-${withoutPrefix(versionId, "sha256:").slice(0, 12)}`;

/** The sequence in a version's name; null for any other name. @param {string} name @returns {number | null} */
export function sequenceOf(name) {
  const [digits, dash, rest] = partition(name, "-");
  return dash && rest && /^[0-9]+$/.test(digits) ? Number(digits) : null;
}

/** Did this database promote the version of this name? @param {string} name @param {(sequence: number) => string | null} known */
export function isKnown(name, known) {
  const sequence = /** @type {number} */ (sequenceOf(name));
  const versionId = known(sequence);
  return versionId !== null && nameOf(sequence, versionId) === name;
}

/** A version that stands already: what did not change is linked from it. */
export class Earlier {
  /** @param {string} versions the folder of all versions @param {string} name */
  constructor(versions, name) {
    this.versions = versions;
    this.name = name;
    /** Folders of the version, and where they are. @type {Map<string, string | null>} */
    this.found = new Map();
  }

  /** Where a file of the version is, by its name in the version; null if no way of ours leads to it. @param {string} name @returns {string | null} */
  path(name) {
    const [folder, , file] = rpartition(name, "/");
    const inside = this.#folder(folder);
    return inside && !files.isLink(`${inside}/${file}`) ? `${inside}/${file}` : null;
  }

  /** A folder that versions share is a link to it. No other link is followed. @param {string} name @returns {string | null} */
  #folder(name) {
    if (!name) return `${this.versions}/${this.name}`;
    const known = this.found.get(name);
    if (known !== undefined) return known;
    const [above, , last] = rpartition(name, "/");
    const inside = this.#folder(above);
    const found = inside && this.#followed(inside, last);
    this.found.set(name, found);
    return found;
  }

  /** @param {string} inside @param {string} name @returns {string | null} */
  #followed(inside, name) {
    const [path, shared] = [`${inside}/${name}`, `${this.versions}/${SHARED}`];
    if (!files.isLink(path)) return path;
    const [way, target] = [inside.startsWith(`${shared}/`) ? "../" : `../${SHARED}/`, files.readlink(path)];
    const found = `${shared}/${withoutPrefix(target, way)}`;
    const ours = target.startsWith(way) && OWN_NAME.test(withoutPrefix(target, way));
    return ours && ![shared, found].some(files.isLink) && files.exists(found) ? found : null;
  }

  /** Do the links at its top lead to what they should? */
  isWhole() {
    return TOP.every((name) => this.#folder(name) !== null);
  }
}

/** Writes one version's files into a folder that is not visible yet. */
export class VersionBuilder {
  /** @param {any} objects @param {string} into @param {Earlier | null} earlier @param {Linking} linking @param {() => void} [tick] */
  constructor(objects, into, earlier, linking, tick = () => {}) {
    this.objects = objects;
    this.into = into;
    this.earlier = linking === "never" ? null : earlier;
    this.linking = linking;
    this.tick = tick;
    /** In the order in which they were made. @type {Set<string>} */
    this.folders = new Set();
  }

  /** Everything of this version, durable when this returns (but for the folder's own name). Its manifest is written last. @param {Manifest} manifest @param {import("../../types.js").Form} form */
  build(manifest, form) {
    files.mkdir(this.into);
    this.folders = new Set([this.into]);
    const placed = manifest.items.flatMap((item) => item.assets.map((asset) => ({ item, asset })));
    for (const { item, asset } of placed.sort((a, b) => byFolders(a.asset.path, b.asset.path))) {
      try {
        this.#placeAsset(asset);
      } catch (error) {
        if (error instanceof StoreCorrupt) throw lost(manifest, item, error);
        throw error;
      }
    }
    for (const [name, text] of documents(manifest, form)) this.#placeDocument(name, Buffer.from(text));
    for (const folder of [...this.folders].reverse()) files.fsyncDir(folder);
  }

  /** The path of a file to be, with its folders made one by one. @param {string} name */
  #path(name) {
    let folder = this.into;
    for (const part of safePath(name).split("/").slice(0, -1)) {
      folder = `${folder}/${part}`;
      if (!this.folders.has(folder)) {
        files.mkdir(folder);
        this.folders.add(folder);
      }
    }
    return `${this.into}/${name}`;
  }

  /** @param {string} name @param {Buffer} data */
  #placeDocument(name, data) {
    const path = this.#path(name);
    const earlier = this.earlier?.path(name);
    if (earlier && readFile(earlier, data.length)?.equals(data) && this.#linked(earlier, path)) return;
    const writer = files.create(path);
    try {
      writer.write(data);
      writer.fsync();
    } finally {
      writer.close();
    }
  }

  /** @param {Asset} asset */
  #placeAsset(asset) {
    const name = `data/${asset.path}`;
    const path = this.#path(name);
    const candidates = [this.linking === "objects" ? this.objects.localPath(asset.sha256) : null, this.earlier?.path(name)];
    // It may have been edited in place: a link would carry that on.
    for (const candidate of candidates) if (candidate && fileSha256(candidate) === asset.sha256 && this.#linked(candidate, path)) return;
    this.#copy(asset, path);
  }

  /** @param {string} old @param {string} fresh */
  #linked(old, fresh) {
    try {
      files.link(old, fresh);
      return true;
    } catch (error) {
      if (isCode(error, ...UNLINKABLE) && files.exists(this.into)) return false;
      throw error;
    }
  }

  /** Copy the object, and compare what passes by with what the manifest promises. @param {Asset} asset @param {string} path */
  #copy(asset, path) {
    const digest = createHash("sha256");
    let size = 0;
    const reader = this.objects.open(asset.sha256);
    try {
      const writer = files.create(path);
      try {
        for (let data = reader.read(COPY_BYTES); data.length; data = reader.read(COPY_BYTES)) {
          digest.update(data);
          size += data.length;
          writer.write(data);
          this.tick();
        }
        writer.fsync();
      } finally {
        writer.close();
      }
    } finally {
      reader.close();
    }
    if (digest.digest("hex") !== asset.sha256 || size !== asset.size) throw new StoreCorrupt(`Object sha256:${asset.sha256} of ${asset.path} holds other bytes.`);
  }
}

/** Folder by folder, the files of each before its folders. @param {string} one @param {string} other */
function byFolders(one, other) {
  for (let [a, b] = [one, other]; ; ) {
    const [[first, isFolder, inside], [second, isOther, beside]] = [partition(a, "/"), partition(b, "/")];
    if (!isFolder !== !isOther) return isFolder ? 1 : -1;
    if (first !== second || !isFolder) return byPoints(first + isFolder, second + isOther);
    [a, b] = [inside, beside];
  }
}

/** The hash of what stands there; null if no file does. @param {string} path */
export function fileSha256(path) {
  const digest = createHash("sha256");
  try {
    const reader = files.open(path);
    try {
      for (let data = reader.read(COPY_BYTES); data.length; data = reader.read(COPY_BYTES)) digest.update(data);
    } finally {
      reader.close();
    }
  } catch (error) {
    if (isCode(error, "ENOENT", "ENOTDIR", "EISDIR")) return null;
    throw error;
  }
  return digest.digest("hex");
}

/** A file's bytes; null if it is not there or longer than allowed. @param {string} path @param {number} [bytesMax] */
function readFile(path, bytesMax = DOCUMENT_BYTES_MAX) {
  try {
    const reader = files.open(path);
    try {
      const parts = [];
      let size = 0;
      for (let data = reader.read(COPY_BYTES); data.length; data = reader.read(COPY_BYTES)) {
        parts.push(Buffer.from(data));
        size += data.length;
        if (size > bytesMax) return null;
      }
      return Buffer.concat(parts);
    } finally {
      reader.close();
    }
  } catch (error) {
    if (isCode(error, "ENOENT", "ENOTDIR", "EISDIR")) return null;
    throw error;
  }
}

/** An object of a promoted version is missing or damaged. @param {Manifest} manifest @param {import("../../types.js").Item} item @param {import("../../model/errors.mjs").KfmError} error */
function lost(manifest, item, error) {
  const window = `${rfc3339(item.window_start_ms)}/${rfc3339(item.window_end_ms)}`;
  return new StoreCorrupt(`${manifest.dataset_id}, item ${item.id}: ${error.detail}`, {
    remedy:
      "Bring the object back from a copy of the objects folder and run `kfm project`; or " +
      `fetch its window again: \`kfm run --source ${item.source_id} --window ${window} --force --rationale TEXT --ticket ID\`.`,
  });
}

/** @param {string} datasetId */
export function requireFolderName(datasetId) {
  if (datasetId.includes("/") || safePath(datasetId) !== datasetId || datasetId.startsWith(".")) throw new TargetUnavailable(`${repr(datasetId)} can't be the name of a folder.`);
  return datasetId;
}
