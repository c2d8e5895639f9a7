/** The fetch: discovered objects into the object store, bounded, verified, resumable. */

import { TransferPace } from "../calls/transfer_pace.mjs";
import { ChecksumMismatch, LimitExceeded, UpstreamUnavailable } from "../model/errors.mjs";

/** @typedef {import("../types.js").Found} Found */
/** @typedef {import("../types.js").Fetched} Fetched */

/** Everything that was found, staged, in the same order. @param {any} kernel @param {any} source @param {Found[]} found @param {any} objects @param {any} nodes @param {() => void} check @param {(retrying: any) => void} onRetry @returns {Promise<Fetched[]>} */
export async function fetchAll(kernel, source, found, objects, nodes, check, onRetry) {
  const { limits } = kernel.settings;
  if (found.length > limits.objects_per_run_max) throw new LimitExceeded(`${found.length} objects, ${limits.objects_per_run_max} allowed (limits.objects_per_run_max).`);
  const announced = found.reduce((sum, one) => sum + (one.size ?? 0), 0);
  if (announced > limits.run_bytes_max) throw new LimitExceeded(`${announced} bytes were found, ${limits.run_bytes_max} are allowed (limits.run_bytes_max).`);
  /** @type {Fetched[]} */
  const fetched = [];
  let total = 0;
  for (const one of found) {
    check();
    const fetch = new Fetch(kernel, source, one, objects, limits.run_bytes_max - total, check);
    const got = await nodes.guard((/** @type {number} */ timeoutMs) => fetch.attempt(timeoutMs), onRetry);
    fetched.push(got);
    total += got.size;
  }
  return fetched;
}

/** What kept bytes must agree on; null if nothing proves that content is the same. @param {Found} found */
function resumeKey(found) {
  const strong = found.etag && !found.etag.startsWith("W/") ? found.etag : null;
  const proof = found.checksum || found.version || strong;
  return proof ? `${found.uri}\n${proof}\n${found.size ?? "None"}` : null;
}

/** One object; `attempt` may be called again after a failure and goes on where it can. */
class Fetch {
  /** @param {any} kernel @param {any} source @param {Found} found @param {any} objects @param {number} bytesLeft @param {() => void} check */
  constructor(kernel, source, found, objects, bytesLeft, check) {
    this.kernel = kernel;
    this.source = source;
    this.found = found;
    this.objects = objects;
    this.limits = kernel.settings.limits;
    this.bytesMax = Math.min(this.limits.object_bytes_max, bytesLeft);
    this.check = check;
    this.reported = 0;
    /** @type {any} */
    this.staging = null;
  }

  /** @param {number} timeoutMs @returns {Promise<Fetched>} */
  async attempt(timeoutMs) {
    let offset;
    [this.staging, offset] = this.objects.stage(resumeKey(this.found));
    let size, sha256;
    try {
      size = await this.#fill(offset, timeoutMs);
      [sha256] = this.staging.commit();
    } catch (error) {
      if (error instanceof ChecksumMismatch || error instanceof LimitExceeded) this.staging.abort();
      else this.staging.keepPartial();
      throw error;
    }
    return this.#verified(sha256, size, offset > 0);
  }

  /** Write what is missing; the whole size. @param {number} offset @param {number} timeoutMs */
  async #fill(offset, timeoutMs) {
    if (offset && offset === this.found.size) return offset; // only the last step was missing
    const download = await this.source.open(this.found, offset);
    this.#expect(download);
    // Of the bytes, not of what was asked before them.
    const { origin: _earlier, ...found } = this.found;
    this.found = download.found.origin === undefined ? found : { ...found, origin: download.found.origin };
    if (download.offset !== offset) {
      this.staging.abort(); // upstream begins anew, so do we
      const [staging, kept] = this.objects.stage(resumeKey(this.found));
      this.staging = staging;
      if (kept !== 0) {
        staging.abort();
        [this.staging] = this.objects.stage(null);
      }
    }
    return this.#copy(download, timeoutMs);
  }

  /** @param {any} download @param {number} timeoutMs */
  async #copy(download, timeoutMs) {
    let size = download.offset;
    const pace = new TransferPace(() => this.kernel.clock.monotonicMs(), timeoutMs);
    for await (const chunk of download.chunks) {
      this.check();
      size += chunk.length;
      if (size > this.bytesMax) throw this.#tooLarge();
      this.staging.write(chunk);
      if (size > this.reported) {
        this.kernel.progress.advance(size - this.reported, this.found.path);
        this.reported = size;
      }
      if (!pace.keepsUp(chunk.length)) throw new UpstreamUnavailable(`${this.found.uri} is too slow.`, { transient: true, cause: "timeout" });
    }
    const announced = download.found.size;
    if (announced !== null && size < announced) throw new UpstreamUnavailable(`${this.found.uri} ended after ${size} of ${announced} bytes.`, { transient: true, cause: "truncated" });
    if (announced !== null && size > announced) throw this.#changed(`has ${size} bytes instead of ${announced}`);
    return size;
  }

  /** @param {any} download */
  #expect(download) {
    const [announced, sent] = [this.found.size, download.found.size];
    if (announced !== null && sent !== null && announced !== sent) throw this.#changed(`has ${sent} bytes instead of ${announced}`);
    if (sent !== null && sent > this.bytesMax) throw this.#tooLarge();
  }

  /** @param {string} sha256 @param {number} size @param {boolean} resumed @returns {Fetched} */
  #verified(sha256, size, resumed) {
    const { found } = this;
    if (found.checksum !== null && found.checksum !== `sha256:${sha256}`)
      throw new ChecksumMismatch(`${found.uri} is sha256:${sha256}, announced was ${found.checksum}.`, { transient: resumed, retryable: true });
    return { found, sha256, size };
  }

  /** @param {string} how */
  #changed(how) {
    return new ChecksumMismatch(`${this.found.uri} ${how}.`, { transient: false, retryable: true });
  }

  #tooLarge() {
    if (this.bytesMax < this.limits.object_bytes_max) return new LimitExceeded(`The run exceeds ${this.limits.run_bytes_max} bytes (limits.run_bytes_max).`);
    return new LimitExceeded(`${this.found.uri} exceeds ${this.limits.object_bytes_max} bytes (limits.object_bytes_max).`);
  }
}
