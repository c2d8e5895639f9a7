/** One resource, or the pages of one, over HTTP. A validator from HEAD identifies the content, or the body's SHA-256. */

import { createHash } from "node:crypto";
import { closeSync } from "node:fs";
import { createGunzip, createInflate } from "node:zlib";
import { ChecksumMismatch, LimitExceeded, UpstreamUnavailable } from "../core/errors.mjs";
import { parseHttpDate } from "../core/http_dates.mjs";
import { splitUrl, unquote } from "../core/urls.mjs";
import { repr, rpartition } from "../core/wording.mjs";
import { shielded, shieldedDownload } from "../engine/circuit_guard.mjs";
import { StallDetector } from "../engine/stall_detector.mjs";
import { Reader, Writer } from "../objects/files.mjs";
import { namelessFile } from "../objects/objects.mjs";
import { Address } from "./address.mjs";
import { request } from "./client.mjs";
import { following } from "./pages.mjs";
import { mediaType, placeFields, publishedPath, settled, suffixFor } from "./placing.mjs";

/** @typedef {import("../types.js").Found} Found */
/** @typedef {import("./client.mjs").Response} Response */
/** @typedef {{url: string, number: number, headers: Record<string, string>, descriptor: number, size: number, sha256: string}} Page */

const BUSY = [408, 429, 500, 502, 503, 504];
const CHUNK_BYTES = 1024 * 1024;

export class HttpSource {
  /** @param {any} source @param {any} kernel @param {any} circuit */
  constructor(source, kernel, circuit) {
    this.source = source;
    this.kernel = kernel;
    this.circuit = circuit;
    this.limits = kernel.settings.limits;
    this.address = new Address(source, (value) => kernel.loaded.secret(value));
    /** Bodies that discovery read, so that they need not come twice. @type {Map<string, {descriptor: number, size: number}>} */
    this.spool = new Map();
    /** Shown address → the one that it stands for. @type {Map<string, string>} */
    this.real = new Map();
  }

  /** @param {import("../types.js").Window} window @returns {Promise<Found[]>} */
  async discover(window) {
    const url = this.address.first(placeFields(this.source, window));
    if (this.source.pagination) return settled(this.source.id, await this.#walk(url, window), this.limits);
    const found = await this.#probe(url, window);
    return settled(this.source.id, found ? [found] : [], this.limits);
  }

  /** @param {Found} found @param {number} offset */
  async open(found, offset) {
    const kept = this.spool.get(found.uri);
    if (kept) return { offset, found, chunks: spooled(kept, offset) };
    const url = this.real.get(found.uri) ?? found.uri;
    // Only a strong ETag proves that the rest belongs to what we have.
    const ranged = Boolean(found.etag?.startsWith('"')) && offset > 0;
    /** @type {Record<string, string>} */
    const more = ranged ? { Range: `bytes=${offset}-`, "If-Range": found.etag ?? "" } : {};
    return shieldedDownload(this.circuit, this.kernel.clock, async () => {
      let response = await this.#asked("GET", url, more);
      if (ranged && (response.status === 416 || (response.status === 206 && !continues(response, found, offset)))) {
        response.close();
        response = await this.#asked("GET", url);
      }
      if (![200, 206].includes(response.status) || (response.status === 206 && !ranged)) throw this.#refusal(url, response);
      this.#sameContent(found, response);
      const begin = response.status === 206 ? offset : 0;
      const length = lengthOf(response.headers);
      const size = encodingOf(response) !== "identity" ? null : length === null ? found.size : begin + length;
      return { offset: begin, found: { ...found, size }, chunks: this.#body(response, url) };
    });
  }

  // --- discovery ---

  /** @param {string} url @param {import("../types.js").Window} window @returns {Promise<Found | null>} */
  async #probe(url, window) {
    const headers = await this.kernel.guard(() => shielded(this.circuit, this.kernel.clock, () => this.#head(url)));
    const modified = parseHttpDate(headers?.["last-modified"]);
    if (headers && (headers.etag || modified)) {
      const name = nameOf(url, headers);
      return {
        uri: this.#show(url),
        path: publishedPath(this.source, window, name),
        media_type: mediaType(name, headers["content-type"] ?? null),
        size: headers["content-encoding"] ? null : lengthOf(headers),
        modified_ms: modified,
        etag: headers.etag ?? null,
        checksum: null,
        version: null,
      };
    }
    const page = await this.#read(url, 1);
    return page ? this.#keep(page, this.#show(url), nameOf(url, page.headers), window) : null;
  }

  /** The headers of the resource; null where HEAD does not tell. @param {string} url @returns {Promise<Record<string, string> | null>} */
  async #head(url) {
    const response = await this.#asked("HEAD", url);
    response.close();
    if (BUSY.includes(response.status)) throw this.#refusal(url, response);
    return response.status === 200 ? response.headers : null;
  }

  /** @param {string} url @param {import("../types.js").Window} window */
  async #walk(url, window) {
    const found = [];
    let total = 0;
    for await (const page of following(this.source.pagination, url, (address, number) => this.#read(address, number), this.address)) {
      total += page.size;
      if (total > this.limits.run_bytes_max) throw new LimitExceeded(`The pages of ${this.address.shown(url)} hold too much (limits.run_bytes_max).`);
      const [stem, dot, suffix] = rpartition(nameOf(url, page.headers), ".");
      const number = String(page.number).padStart(4, "0");
      // Cursors may look like secrets and be masked: the number keeps the addresses apart.
      found.push(this.#keep(page, this.#show(page.url, `#page=${page.number}`), dot ? `${stem}-${number}.${suffix}` : `${suffix}-${number}`, window));
    }
    return found;
  }

  /** A whole body, hashed; null for "no content". @param {string} url @param {number} number @returns {Promise<Page | null>} */
  #read(url, number) {
    return this.kernel.guard(() => shielded(this.circuit, this.kernel.clock, () => this.#readOnce(url, number)));
  }

  /** @param {string} url @param {number} number @returns {Promise<Page | null>} */
  async #readOnce(url, number) {
    const response = await this.#asked("GET", url);
    if (response.status === 204 || (response.status === 404 && number > 1)) {
      response.close();
      return null;
    }
    if (response.status !== 200) {
      response.close();
      throw this.#refusal(url, response);
    }
    const descriptor = namelessFile();
    const writer = new Writer(descriptor);
    const digest = createHash("sha256");
    let size = 0;
    try {
      for await (const chunk of this.#body(response, url)) {
        size += chunk.length;
        if (size > this.limits.object_bytes_max) throw new LimitExceeded(`${this.address.shown(url)} is larger than limits.object_bytes_max.`);
        digest.update(chunk);
        writer.write(chunk);
      }
    } catch (error) {
      closeSync(descriptor);
      throw error;
    }
    return { url, number, headers: response.headers, descriptor, size, sha256: digest.digest("hex") };
  }

  /** @param {Page} page @param {string} shown @param {string} name @param {import("../types.js").Window} window @returns {Found} */
  #keep(page, shown, name, window) {
    this.spool.set(shown, page);
    return {
      uri: shown,
      path: publishedPath(this.source, window, name),
      media_type: mediaType(name, page.headers["content-type"] ?? null),
      size: page.size,
      modified_ms: null,
      etag: null,
      checksum: `sha256:${page.sha256}`,
      version: null,
    };
  }

  // --- one request ---

  /** @param {"GET" | "HEAD"} method @param {string} url @param {Record<string, string>} [more] */
  #asked(method, url, more = {}) {
    const { address } = this;
    const wording = { address: address.shown(url), secrets: address.secrets() };
    return request(method, address.outgoing(url), { ...address.headers(), ...more }, this.limits.call_timeout_ms, wording, this.kernel.version);
  }

  /** What the answer stands for: whole or an error, and free of encodings that were not asked for. @param {Response} response @param {string} url @returns {AsyncGenerator<Buffer>} */
  async *#body(response, url) {
    const shown = this.address.shown(url);
    const encoding = encodingOf(response);
    const raw = whole(response, shown, new StallDetector(() => this.kernel.clock.monotonicMs(), this.limits.call_timeout_ms));
    if (encoding === "identity") return yield* raw;
    if (!["gzip", "x-gzip", "deflate"].includes(encoding)) throw new UpstreamUnavailable(`The answer is encoded as ${repr(encoding.slice(0, 40))}.`, { transient: false });
    const inflating = encoding === "deflate" ? createInflate() : createGunzip();
    const { Readable } = await import("node:stream");
    const { pipeline } = await import("node:stream/promises");
    const piped = pipeline(Readable.from(raw), inflating).catch((error) => {
      inflating.destroy(error);
    });
    try {
      yield* /** @type {AsyncIterable<Buffer>} */ (inflating);
      await piped;
    } catch (error) {
      if (error instanceof UpstreamUnavailable) throw error;
      throw new UpstreamUnavailable("The compressed answer is damaged.", { transient: true });
    }
    return undefined;
  }

  /** The address that records hold; which one it stands for is remembered. @param {string} url @param {string} [mark] */
  #show(url, mark = "") {
    const shown = this.address.shown(url) + mark;
    this.real.set(shown, url);
    return shown;
  }

  /** @param {string} url @param {Response} response */
  #refusal(url, response) {
    response.close();
    return new UpstreamUnavailable(`${this.address.shown(url)} answered ${response.status}.`, { status: response.status, retry_after: response.headers["retry-after"] ?? null });
  }

  /** @param {Found} found @param {Response} response */
  #sameContent(found, response) {
    const etag = response.headers.etag;
    const modified = parseHttpDate(response.headers["last-modified"]);
    const opaque = (/** @type {string} */ text) => text.replace(/^W\//, "");
    const changed = found.etag && etag ? opaque(found.etag) !== opaque(etag) : found.modified_ms !== null && modified !== null && found.modified_ms !== modified;
    if (!changed) return;
    response.close();
    // Asking again gives the same answer: the run has to look anew.
    throw new ChecksumMismatch(`${found.uri} changed since it was found.`, { transient: false, retryable: true });
  }
}

/** @param {Response} response */
const encodingOf = (response) => (response.headers["content-encoding"] ?? "").trim().toLowerCase() || "identity";

/** The raw bytes; an error where fewer or more came than were announced, or where they trickle. @param {Response} response @param {string} shown @param {StallDetector} pace @returns {AsyncGenerator<Buffer>} */
async function* whole(response, shown, pace) {
  const announced = response.headers["content-length"] ?? "";
  const broken = (/** @type {number} */ got) => new UpstreamUnavailable(`${shown} announced ${announced} bytes and sent ${got}.`, { transient: true, cause: "truncated" });
  let received = 0;
  try {
    for await (const chunk of response.chunks) {
      received += chunk.length;
      yield chunk;
      if (!pace.keepsUp(chunk.length)) throw new UpstreamUnavailable(`${shown} is too slow.`, { transient: true, cause: "timeout" });
    }
  } finally {
    response.close();
  }
  if (/^[0-9]+$/.test(announced) && received !== Number(announced)) throw broken(received);
}

/** @param {{descriptor: number, size: number}} kept @param {number} offset @returns {AsyncGenerator<Buffer>} */
async function* spooled(kept, offset) {
  const reader = new Reader(kept.descriptor, false);
  reader.at = offset;
  for (let chunk = reader.read(CHUNK_BYTES); chunk.length; chunk = reader.read(CHUNK_BYTES)) yield chunk;
}

/** @param {Response} response @param {Found} found @param {number} offset */
function continues(response, found, offset) {
  const match = /^bytes (\d+)-(\d+)\/(\d+|\*)$/.exec(response.headers["content-range"] ?? "");
  if (!match || Number(match[1]) !== offset || encodingOf(response) !== "identity") return false;
  return match[3] === "*" || (Number(match[2]) === Number(match[3]) - 1 && (found.size === null || found.size === Number(match[3])));
}

/** @param {Record<string, string>} headers */
function lengthOf(headers) {
  const digits = headers["content-length"] ?? "";
  return /^[0-9]+$/.test(digits) ? Number(digits) : null;
}

/** The last segment of the path; a suffix is added from the type where it has none. @param {string} url @param {Record<string, string>} headers */
function nameOf(url, headers) {
  const path = unquote(splitUrl(url)?.path ?? "").replace(/\/+$/, "");
  const name = rpartition(path, "/")[2].replaceAll("\\", "_").replace(/^\.+/, "") || "data";
  return name.includes(".") ? name : name + suffixFor(headers["content-type"] ?? null);
}
