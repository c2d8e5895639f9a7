/**
 * The publisher: the only way in which a pipeline changes anything.
 *
 * Nothing that it takes in is visible before the promotion: files are staged under their hash, events and states are
 * collected, and the run executor commits all of it in one transaction. The publisher of a dry run only says what it would do.
 */

import { createHash } from "node:crypto";
import { DryRunViolated, IllegalTransition, KfmError, LimitExceeded, PathConflict, SchemaViolation, SecretInData } from "../model/errors.mjs";
import { fromPlain } from "../model/json.mjs";
import { safePath } from "../model/templates.mjs";
import { byPoints, sortedByPoints } from "../model/wording.mjs";
import { payloadHash } from "./publisher_trace.mjs";

/** @typedef {import("./publisher_trace.mjs").Trace} Trace */
/** @typedef {import("../types.js").Asset} Asset */
/** @typedef {import("../types.js").Fetched} Fetched */
/** @typedef {{mediaType?: string, sourceUri?: string | null, modifiedMs?: number | null, roles?: string[]}} FileMetadata */
/** @typedef {{assets: Asset[], events: [string, any][], states: [string, any][], release: any}} Staged */

const CHUNK_BYTES = 1024 * 1024;
const WRITTEN_PATH_REMEDY = "Correct the path that the pipeline gives write_file: plain and relative, as a/b.csv.";
const KNOWN = ["mediaType", "sourceUri", "modifiedMs", "roles"];

/** Five operations, for dry-run and real runs alike. Closed when the run ends. */
export class Publisher {
  /** @param {Trace} trace @param {{limits: any, leaks: (value: any) => boolean, dryRun: boolean, check?: () => void}} about `check` raises once the run was stopped: from then on nothing is taken in */
  constructor(trace, { limits, leaks, dryRun, check = () => {} }) {
    this.trace = trace;
    this.check = check;
    this.limits = limits;
    this.leaks = leaks;
    this.dryRun = dryRun;
    /** @type {Map<string, Asset>} */
    this.assets = new Map();
    /** @type {[string, any][]} */
    this.events = [];
    /** @type {Map<string, any>} */
    this.states = new Map();
    /** @type {any} */
    this.release = null;
    this.bytes = 0;
    this.closed = false;
  }

  /** Take the bytes in. @param {any} _data @returns {Promise<[string, number]>} */
  async take(_data) {
    throw new Error("a publisher says how it takes bytes in");
  }

  /** Publish these bytes at this path of the dataset. @param {string} path @param {any} data text, bytes, a stream of them, or a fetched input @param {FileMetadata} [metadata] @returns {Promise<Asset>} */
  async writeFile(path, data, metadata = {}) {
    this.#requireOpen("write_file");
    let asset;
    try {
      asset = await this.#asset(path, data, metadata);
    } catch (error) {
      if (error instanceof KfmError) this.trace.record("write_file", "refused", { error_code: error.code });
      throw error;
    }
    this.assets.set(asset.path, asset);
    this.bytes += asset.size;
    const { sha256, size, media_type } = asset;
    this.trace.record("write_file", this.#outcome, { path: asset.path, size, sha256, media_type });
    return asset;
  }

  /** @param {string} given @param {any} data @param {FileMetadata} metadata @returns {Promise<Asset>} */
  async #asset(given, data, metadata) {
    const path = safePath(given, WRITTEN_PATH_REMEDY);
    const known = isFetched(data) ? { mediaType: data.found.media_type, sourceUri: data.found.uri, modifiedMs: data.found.modified_ms } : {};
    const unknown = Object.keys(metadata).find((name) => !KNOWN.includes(name));
    if (unknown) throw new SchemaViolation(`File metadata: there is no ${unknown}; there are ${KNOWN.join(", ")}`);
    const details = { mediaType: "application/octet-stream", sourceUri: null, modifiedMs: null, roles: ["data"], ...known, ...metadata };
    this.#requireNoSecret("The name of a file or its metadata tells it.", path, metadata);
    if (this.assets.has(path)) throw new PathConflict(`${path} was written twice by one run.`);
    if (this.assets.size >= this.limits.objects_per_run_max) throw new LimitExceeded(`objects_per_run_max is ${this.limits.objects_per_run_max}.`);
    const [sha256, size] = await this.take(data);
    if (this.bytes + size > this.limits.run_bytes_max) throw new LimitExceeded(`run_bytes_max is ${this.limits.run_bytes_max}.`);
    return { path, sha256, size, media_type: details.mediaType, source_uri: details.sourceUri, modified_ms: details.modifiedMs, roles: details.roles };
  }

  /** Emit an event, once the promotion is committed. @param {string} eventType @param {Record<string, any>} payload */
  emitEvent(eventType, payload) {
    this.#requireOpen("emit_event");
    this.#requireNoSecret("An event tells it.", eventType, payload);
    const plain = fromPlain(payload);
    const payload_sha256 = payloadHash(plain);
    this.events.push([eventType, plain]);
    this.trace.record("emit_event", this.#outcome, { event_type: eventType, payload_sha256 });
  }

  /** Remember a value with the promotion; the last one for a key counts. @param {string} stateKey @param {any} value */
  updateState(stateKey, value) {
    this.#requireOpen("update_state");
    this.#requireNoSecret("A state tells it.", stateKey, value);
    const plain = fromPlain(value);
    const payload_sha256 = payloadHash({ value: plain });
    this.states.set(stateKey, plain);
    this.trace.record("update_state", this.#outcome, { state_key: stateKey, payload_sha256 });
  }

  /** Describe the version that the run makes. Once for each run. @param {Record<string, any>} metadata */
  publishRelease(metadata) {
    this.#requireOpen("publish_release");
    if (this.release !== null) throw new IllegalTransition("A run publishes one release.");
    this.#requireNoSecret("The release's metadata tell it.", metadata);
    const plain = fromPlain(metadata);
    const payload_sha256 = payloadHash(plain);
    this.release = plain;
    this.trace.record("publish_release", this.#outcome, { payload_sha256 });
  }

  /** In a dry-run: raise unless nothing was changed. In a real run: nothing to guard. */
  noopGuard() {
    this.#requireOpen("noop_guard");
    if (!this.isUntouched()) {
      this.trace.record("noop_guard", "refused", { error_code: new DryRunViolated().code });
      throw new DryRunViolated();
    }
    this.trace.record("noop_guard", "checked");
  }

  isUntouched() {
    return true;
  }

  /** Everything taken in so far: files by path, states by key, events as they came. @returns {Staged} */
  staged() {
    return {
      assets: [...this.assets.values()].sort((a, b) => byPoints(a.path, b.path)),
      events: this.events,
      states: sortedByPoints(this.states.keys()).map((key) => [key, this.states.get(key)]),
      release: this.release,
    };
  }

  close() {
    if (this.closed) return;
    this.closed = true;
    this.trace.record("close", "closed");
  }

  get #outcome() {
    return this.dryRun ? "intended" : "staged";
  }

  /** @param {string} operation */
  #requireOpen(operation) {
    if (this.closed) throw new IllegalTransition(`${operation} was called after the run had ended.`);
    this.check();
  }

  /** @param {string} detail @param {...any} values */
  #requireNoSecret(detail, ...values) {
    if (values.some((each) => this.leaks(each))) throw new SecretInData(detail);
  }

  /** The data in bounded pieces; stops a file that is larger than allowed while it arrives. @param {any} data @returns {AsyncGenerator<Uint8Array>} */
  async *pieces(data) {
    let size = 0;
    for await (const chunk of chunksOf(data)) {
      this.check();
      size += chunk.length;
      if (size > this.limits.object_bytes_max) throw new LimitExceeded(`object_bytes_max is ${this.limits.object_bytes_max}.`);
      yield chunk;
    }
  }
}

/** @param {any} data @returns {data is Fetched} */
export const isFetched = (data) => Boolean(data) && typeof data === "object" && typeof data.sha256 === "string" && Boolean(data.found);

/** @param {any} data @returns {AsyncGenerator<Uint8Array>} */
async function* chunksOf(data) {
  if (typeof data === "string" || data instanceof Uint8Array) {
    const bytes = typeof data === "string" ? Buffer.from(data) : data;
    for (let at = 0; at < bytes.length; at += CHUNK_BYTES) yield bytes.subarray(at, at + CHUNK_BYTES);
    return;
  }
  for await (const chunk of data) yield typeof chunk === "string" ? Buffer.from(chunk) : chunk;
}

/** Stage a stream of bytes. @param {any} objects @param {AsyncIterable<Uint8Array>} chunks @returns {Promise<[string, number]>} */
async function staged(objects, chunks) {
  const [staging] = objects.stage();
  try {
    for await (const chunk of chunks) staging.write(chunk);
    return staging.commit();
  } catch (error) {
    staging.abort();
    throw error;
  }
}

/** Stages bytes in the object store; the promotion makes them visible. */
export class StagingPublisher extends Publisher {
  /** @param {any} objects @param {Trace} trace @param {{limits: any, leaks: (value: any) => boolean, check?: () => void}} about */
  constructor(objects, trace, about) {
    super(trace, { ...about, dryRun: false });
    this.objects = objects;
  }

  /** @override @param {any} data @returns {Promise<[string, number]>} */
  async take(data) {
    if (!isFetched(data)) return staged(this.objects, this.pieces(data));
    if (!this.objects.has(data.sha256)) throw new IllegalTransition(`The object of ${data.found.path} is not staged.`);
    return [data.sha256, data.size];
  }
}

/** Only the hash: the bytes are not kept. @param {AsyncIterable<Uint8Array>} chunks @returns {Promise<[string, number]>} */
export async function hashed(chunks) {
  const digest = createHash("sha256");
  let size = 0;
  for await (const chunk of chunks) {
    digest.update(chunk);
    size += chunk.length;
  }
  return [digest.digest("hex"), size];
}

export { staged };

// --- dry run -----------------------------------------------------------------------------

export class NoopPublisher extends Publisher {
  /** @param {Trace} trace @param {{limits: any, leaks: (value: any) => boolean, scratch?: any, observe?: () => unknown}} about */
  constructor(trace, { scratch = null, observe = () => null, ...about }) {
    super(trace, { ...about, dryRun: true });
    this.scratch = scratch; // keeps bytes in files that vanish by themselves
    this.observe = observe; // the state that must not change
    this.before = observe();
  }

  /** @override @param {any} data @returns {Promise<[string, number]>} */
  async take(data) {
    if (isFetched(data)) return [data.sha256, data.size];
    return this.scratch ? staged(this.scratch, this.pieces(data)) : hashed(this.pieces(data));
  }

  /** @override */
  isUntouched() {
    return this.observe() === this.before;
  }
}
