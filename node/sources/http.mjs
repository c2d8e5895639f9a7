/** One resource, or the pages of one, over HTTP: its address, the client, the pages. A validator from HEAD identifies the content, or the body's SHA-256. */

import { createHash } from "node:crypto";
import { lookup } from "node:dns";
import { closeSync } from "node:fs";
import * as http from "node:http";
import * as https from "node:https";
import { createGunzip, createInflate } from "node:zlib";
import { callBehindCircuit, downloadBehindCircuit } from "../calls/circuit_guards.mjs";
import { TransferPace } from "../calls/transfer_pace.mjs";
import { parseAddress, permits, reachOf } from "../model/addresses.mjs";
import { AddressRefused, ChecksumMismatch, ConfigError, LimitExceeded, UpstreamUnavailable } from "../model/errors.mjs";
import { MASK, hide, isSecretName, redact, redactUrl, stripParams } from "../model/redaction.mjs";
import { render } from "../model/templates.mjs";
import { isStrongDate, parseHttpDate } from "../model/times.mjs";
import { joinUrl, quote, splitUrl, unquote } from "../model/urls.mjs";
import { repr, rpartition } from "../model/wording.mjs";
import { Reader, Writer } from "../objects/files.mjs";
import { namelessFile } from "../objects/scratch.mjs";
import { mediaType, placeFields, publishedPath, settled, suffixFor } from "./placement.mjs";

// --- client ------------------------------------------------------------------------------

/** @typedef {{status: number, headers: Record<string, string>, address: string, chunks: AsyncIterable<Buffer>, close: () => void}} Response */
/** @typedef {{address: string, secrets: string[]}} Wording */

const REDIRECTS_MAX = 5;
const REDIRECTS = [301, 302, 303, 307, 308];
// The headers that another host may see after a redirect.
const HARMLESS = ["accept", "accept-encoding", "range", "if-range", "if-none-match", "user-agent"];
const PORTS = /** @type {Record<string, number>} */ ({ http: 80, https: 443 });
const TRUST = ["CERT", "SELF_SIGNED", "UNABLE_TO"];

/** @param {"GET" | "HEAD"} method @param {string} url @param {Record<string, string>} given @param {number} timeoutMs @param {Wording} wording @param {string} version @param {string[]} [allow] private hosts and ranges beside that of `url` @returns {Promise<Response>} */
export async function request(method, url, given, timeoutMs, wording, version, allow = []) {
  /** @type {Record<string, string>} */
  let headers = { "accept-encoding": "identity", "user-agent": `kfm/${version}`, ...Object.fromEntries(Object.entries(given).map(([name, value]) => [name.toLowerCase(), value])) };
  let address = url;
  const reach = reachOf(hostOf(url), allow);
  for (let round = 0; round <= REDIRECTS_MAX; round += 1) {
    const response = await send(method, address, headers, timeoutMs, wording, reach).catch((error) => {
      if (!(error instanceof NotPermitted)) throw error;
      throw new AddressRefused(`${wording.address} ${address === url ? "leads to" : "redirects to"} ${error.message}, which is not public.`, { transient: false });
    });
    const { location } = response.headers;
    if (!REDIRECTS.includes(response.status) || !location) return response;
    response.close();
    const target = targetOf(address, location, wording);
    if (!keepsTrust(address, target)) headers = Object.fromEntries(Object.entries(headers).filter(([name]) => HARMLESS.includes(name)));
    address = target;
  }
  throw new UpstreamUnavailable(`${wording.address} redirects more than ${REDIRECTS_MAX} times.`, { transient: false });
}

/** A host, or where it leads, that may not be connected to. */
class NotPermitted extends Error {}

/** @param {string} url */
const hostOf = (url) => (URL.canParse(url) ? new URL(url).hostname.replace(/^\[|\]$/g, "") : "");

/** Resolves a name and hands on only the addresses that may be reached: the connection is made to one of those. @param {import("../model/addresses.mjs").Reach} reach @returns {import("node:net").LookupFunction} */
const checkedLookup = (reach) => (host, options, done) =>
  lookup(host, { ...options, all: true }, (error, found) => {
    const permitted = (found ?? []).filter(({ address }) => permits(reach, host, address));
    const [first] = permitted;
    if (error) done(error, []);
    else if (!first) done(new NotPermitted(found[0] ? `${host} (${found[0].address})` : host), []);
    else if (options.all) done(null, permitted);
    else done(null, first.address, first.family);
  });

/** @param {string} method @param {string} url @param {Record<string, string>} headers @param {number} timeoutMs @param {Wording} wording @param {import("../model/addresses.mjs").Reach} reach @returns {Promise<Response>} */
async function send(method, url, headers, timeoutMs, wording, reach) {
  if (!URL.canParse(url)) throw new UpstreamUnavailable(`${wording.address} is no address.`, { transient: false });
  const client = url.startsWith("https:") ? https : http;
  const host = hostOf(url);
  if (parseAddress(host) && !permits(reach, host, host)) throw new NotPermitted(host);
  return new Promise((done, fail) => {
    const asked = client.request(new URL(url), { method, headers, agent: false, timeout: timeoutMs, lookup: checkedLookup(reach) }, (answer) => {
      done({
        address: url,
        status: answer.statusCode ?? 0,
        headers: Object.fromEntries(Object.entries(answer.headers).map(([name, value]) => [name, Array.isArray(value) ? value.join(", ") : (value ?? "")])),
        chunks: explained(answer, wording),
        close: () => answer.destroy(),
      });
    });
    asked.on("timeout", () => asked.destroy(Object.assign(new Error("timeout"), { code: "KFM_TIMEOUT" })));
    asked.on("error", (error) => fail(error instanceof NotPermitted ? error : inOurWords(error, wording)));
    asked.end();
  });
}

/** @param {AsyncIterable<Buffer>} answer @param {Wording} wording @returns {AsyncGenerator<Buffer>} */
async function* explained(answer, wording) {
  try {
    yield* answer;
  } catch (error) {
    throw inOurWords(/** @type {Error} */ (error), wording);
  }
}

/** Errors of the client, in our words, without secrets. @param {Error} error @param {Wording} wording */
function inOurWords(error, wording) {
  const code = String(/** @type {any} */ (error).code ?? "");
  if (code === "KFM_TIMEOUT") return new UpstreamUnavailable(`${wording.address} did not answer in time (ReadTimeout).`, { transient: true, cause: "timeout" });
  const reason = redact(error.message || code || error.constructor.name, wording.secrets);
  const trusted = !TRUST.some((start) => code.startsWith(start) || code.includes("_CERT"));
  return new UpstreamUnavailable(`${wording.address}: ${reason}.`, { transient: trusted, cause: "network" });
}

/** @param {string} address @param {string} location @param {Wording} wording */
function targetOf(address, location, wording) {
  const target = URL.canParse(location, address) ? splitUrl(new URL(location, address).href) : null;
  if (!target?.hostname || target.port === false || !PORTS[target.scheme]) throw new UpstreamUnavailable(`${wording.address} redirects to no web address.`, { transient: false });
  if (address.startsWith("https:") && target.scheme === "http") throw new UpstreamUnavailable(`${wording.address} redirects from https to http.`, { transient: false });
  return joinUrl({ scheme: target.scheme, netloc: rpartition(target.netloc, "@")[2], path: target.path || "/", query: target.query });
}

/** Same host and port, or the step from http to https on the same host. @param {string} address @param {string} target */
function keepsTrust(address, target) {
  const [here, there] = [splitUrl(address), splitUrl(target)];
  if (!here || !there || here.hostname !== there.hostname) return false;
  const [from, to] = [here, there].map((parts) => parts.port || PORTS[parts.scheme]);
  return (here.scheme === there.scheme && from === to) || (from === 80 && to === 443);
}

// --- address -----------------------------------------------------------------------------

/** @param {string} value */
const isReference = (value) => value.startsWith("env:") || value.startsWith("file:");

/** Secrets are resolved at use and never become part of a shown address. */
export class Address {
  /** @param {any} source @param {(value: string) => string} resolve */
  constructor(source, resolve) {
    this.source = source;
    this.resolve = resolve;
    /** @type {[string, string][]} */
    this.params = Object.entries(source.params);
    this.secret = new Set(this.params.filter(([name, value]) => isReference(value) || isSecretName(name)).map(([name]) => name));
  }

  /** The rendered address with its public parameters, without credentials. @param {any} fields */
  first(fields) {
    const parts = this.#split(render(this.source.url ?? "", fields));
    const open = this.params.filter(([name]) => !this.secret.has(name)).map(([name, value]) => /** @type {[string, string]} */ ([name, render(value, fields)]));
    return joinUrl({ scheme: parts.scheme, netloc: rpartition(parts.netloc, "@")[2], path: parts.path || "/", query: joined(parts.query, encoded(open)) });
  }

  /** The address as it goes out: with the secret parameters. @param {string} shown */
  outgoing(shown) {
    const parts = this.#split(stripParams(shown, this.secret));
    const secret = [...this.secret].sort().map((name) => /** @type {[string, string]} */ ([name, this.resolve(this.source.params[name])]));
    return joinUrl({ ...parts, query: joined(parts.query, encoded(secret)), fragment: "" });
  }

  /** The address as it may be stored and published. @param {string} url */
  shown(url) {
    let open;
    try {
      open = stripParams(url, this.secret);
    } catch {
      return MASK;
    }
    return hide(redactUrl(open), this.secrets());
  }

  /** Every secret that goes out, to be redacted from every message about the answer. */
  secrets() {
    /** @type {[string, string][]} */
    const named = [...this.params, ...Object.entries(/** @type {Record<string, string>} */ (this.source.headers))];
    const values = named.filter(([name, value]) => isReference(value) || isSecretName(name)).map(([, value]) => this.resolve(value));
    const [user, password] = this.#credentials();
    if (password) values.push(password, basic(user, password));
    // `Bearer abc` may be repeated without its first word.
    return values.flatMap((value) => [value, ...value.split(/\s+/).filter(Boolean).slice(1)]);
  }

  /** @returns {Record<string, string>} */
  headers() {
    /** @type {Record<string, string>} */
    const headers = Object.fromEntries(Object.entries(/** @type {Record<string, string>} */ (this.source.headers)).map(([name, value]) => [name, this.resolve(value)]));
    const [user, password] = this.#credentials();
    if (user !== null && !Object.keys(headers).some((name) => name.toLowerCase() === "authorization")) headers.Authorization = `Basic ${basic(user, password)}`;
    for (const [name, value] of Object.entries(headers))
      // eslint-disable-next-line no-control-regex
      if (!/^[\x20-\x7e]*$/.test(value) || value !== value.trim())
        throw new ConfigError(`The header ${name} of source \`${this.source.id}\` has characters that can't be sent, or blanks around it.`);
    return headers;
  }

  /** The next page's address. It must lead to the same host: our credentials go with it. @param {string} current @param {string} link */
  follow(current, link) {
    const here = splitUrl(current);
    const there = URL.canParse(link, current) ? splitUrl(new URL(link, current).href) : null;
    const same = here && there && ["http", "https"].includes(there.scheme) && here.hostname === there.hostname && (there.port === here.port || there.port === null);
    if (!same) throw new UpstreamUnavailable(`${this.shown(current)} continues at another host: ${this.shown(link)}.`, { transient: false });
    // Servers behind a proxy often name themselves by http; the way we came is the way we go on.
    return joinUrl({ scheme: here.scheme, netloc: here.netloc, path: there.path || "/", query: there.query });
  }

  /** @returns {[string | null, string | null]} */
  #credentials() {
    const parts = splitUrl(this.source.url ?? "");
    const password = parts?.password ? unquote(parts.password) : (parts?.password ?? null);
    const user = parts?.username ? unquote(parts.username) : (parts?.username ?? null);
    return [user, password ? this.resolve(password) : password];
  }

  /** @param {string} url */
  #split(url) {
    const parts = splitUrl(url);
    if (!parts) throw new UpstreamUnavailable(`${MASK} is no address.`, { transient: false });
    return parts;
  }
}

/** @param {string | null} user @param {string | null} password */
const basic = (user, password) => Buffer.from(`${user ?? ""}:${password ?? ""}`).toString("base64");

/** The address with these parameters set, others kept. @param {string} url @param {Record<string, string>} params */
export function withParams(url, params) {
  const parts = /** @type {import("../model/urls.mjs").Parts} */ (splitUrl(stripParams(url, Object.keys(params))));
  return joinUrl({ ...parts, query: joined(parts.query, encoded(Object.entries(params))) });
}

/** @param {...string} parts */
const joined = (...parts) => parts.filter(Boolean).join("&");
/** @param {[string, string][]} pairs */
const encoded = (pairs) => pairs.map(([name, value]) => `${quote(name, ":,/")}=${quote(value, ":,/")}`).join("&");

// --- pages -------------------------------------------------------------------------------

const PAGE_BYTES_MAX = 64 * 1024 * 1024;
const LINK = /<([^<>]*)>\s*((?:;\s*[\w!#$&+.^`|~*-]+\s*(?:=\s*(?:"[^"]*"|[^\s,;"]*))?\s*)*)/g;
const REL = /;\s*rel\s*=\s*(?:"([^"]*)"|([^\s,;"]+))/i;

/** Every page with something on it, in order. @param {any} pagination @param {string} url @param {(address: string, number: number) => Promise<Page | null>} read @param {Address} address @returns {AsyncGenerator<Page>} */
export async function* following(pagination, url, read, address) {
  const shown = (/** @type {string} */ one) => address.shown(one);
  const circle = (/** @type {number} */ number) =>
    new LimitExceeded(`The pages of ${shown(url)} go round in a circle: page ${number} was there before.`, { remedy: "Check the source's `pagination`; upstream may ignore the page parameter." });
  const counts = ["page-number", "offset"].includes(pagination.style);
  const seen = new Set();
  let next = first(pagination, url);
  let last = "";
  for (let number = 1; number <= pagination.pages_max; number += 1) {
    if (seen.has(next)) throw circle(number);
    seen.add(next);
    const page = await read(next, number);
    if (!page) return;
    const body = pagination.style === "link-header" ? null : parsed(page, shown(page.url));
    if (counts && !itemsOf(pagination, body, shown(page.url)).length) {
      closeSync(page.descriptor);
      return;
    }
    if (counts && page.sha256 === last) throw circle(number); // it does not heed our parameter
    last = page.sha256;
    yield page;
    const onward = nextOf(pagination, page, body, url, address);
    if (onward === null) return;
    next = onward;
  }
  throw new LimitExceeded(`${shown(url)} has more than ${pagination.pages_max} pages (pagination.pages_max).`);
}

/** @param {any} pagination @param {string} url */
function first(pagination, url) {
  /** @type {Record<string, string>} */
  const params = {};
  if (pagination.size_parameter) params[pagination.size_parameter] = String(pagination.page_size);
  if (pagination.style === "page-number") params[pagination.parameter] = String(pagination.first);
  else if (pagination.style === "offset") params[pagination.parameter] = "0";
  return Object.keys(params).length ? withParams(url, params) : url;
}

/** @param {any} pagination @param {Page} page @param {any} body @param {string} url @param {Address} address @returns {string | null} */
function nextOf(pagination, page, body, url, address) {
  if (pagination.style === "link-header") {
    const link = nextLink(page.headers.link ?? "");
    return link ? address.follow(page.url, link) : null;
  }
  if (pagination.style === "json-next") {
    let link = pointed(body, pagination.next_pointer);
    if (link && typeof link === "object" && !Array.isArray(link)) link = link.href ?? null;
    if (link !== null && link !== undefined && typeof link !== "string") throw new UpstreamUnavailable(`${address.shown(page.url)}: ${pagination.next_pointer} is no address.`, { transient: false });
    return link ? address.follow(page.url, link) : null;
  }
  const step = pagination.style === "offset" ? page.number * pagination.page_size : pagination.first + page.number;
  return withParams(first(pagination, url), { [pagination.parameter]: String(step) });
}

/** The target with rel="next" of a Link header. @param {string} header */
function nextLink(header) {
  for (const match of header.slice(0, 65_536).matchAll(LINK)) {
    const rel = REL.exec(match[2] ?? "");
    if (rel && (rel[1] ?? rel[2] ?? "").toLowerCase().split(/\s+/).includes("next")) return match[1] ?? null;
  }
  return null;
}

/** What a JSON pointer (RFC 6901) leads to; null if nothing. @param {any} document @param {string} pointer @returns {any} */
function pointed(document, pointer) {
  let found = document;
  for (const token of pointer ? pointer.split("/").slice(1) : []) {
    const key = token.replaceAll("~1", "/").replaceAll("~0", "~");
    if (Array.isArray(found)) found = /^[0-9]+$/.test(key) ? (found[Number(key)] ?? null) : null;
    else if (found && typeof found === "object") found = Object.hasOwn(found, key) ? found[key] : null;
    else return null;
  }
  return found;
}

/** @param {any} pagination @param {any} body @param {string} shown @returns {any[]} */
function itemsOf(pagination, body, shown) {
  const items = pointed(body, pagination.items_pointer);
  if (!Array.isArray(items)) throw new UpstreamUnavailable(`${shown} has no list at ${pagination.items_pointer || "the top"} (pagination.items_pointer).`, { transient: false });
  return items;
}

/** @param {Page} page @param {string} shown @returns {any} */
function parsed(page, shown) {
  if (page.size > PAGE_BYTES_MAX) throw new LimitExceeded(`A page of ${shown} is larger than ${PAGE_BYTES_MAX} bytes.`);
  try {
    return JSON.parse(new Reader(page.descriptor, false).read(Math.max(1, page.size)).toString("utf8"));
  } catch {
    throw new UpstreamUnavailable(`${shown} did not answer with JSON.`, { transient: false });
  }
}

// --- source ------------------------------------------------------------------------------

/** @typedef {import("../types.js").Found} Found */
/** @typedef {{url: string, number: number, headers: Record<string, string>, descriptor: number, size: number, sha256: string, origin?: string}} Page */

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
    return downloadBehindCircuit(this.circuit, this.kernel.clock, async () => {
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
      const { origin: _earlier, ...rest } = found;
      return { offset: begin, found: { ...rest, size, ...this.#origin(url, response) }, chunks: this.#body(response, url) };
    });
  }

  // --- discovery ---

  /** @param {string} url @param {import("../types.js").Window} window @returns {Promise<Found | null>} */
  async #probe(url, window) {
    const answer = await this.kernel.guard(() => callBehindCircuit(this.circuit, this.kernel.clock, () => this.#head(url)));
    const headers = answer?.headers ?? null;
    const modified = parseHttpDate(headers?.["last-modified"]);
    if (headers && (headers.etag || isStrongDate(headers, this.kernel.clock.nowMs()))) {
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
        ...this.#origin(url, /** @type {Response} */ (answer)),
      };
    }
    const page = await this.#read(url, 1);
    return page ? this.#keep(page, this.#show(url), nameOf(url, page.headers), window) : null;
  }

  /** The answer with the headers of the resource; null where HEAD has none. @param {string} url @returns {Promise<Response | null>} */
  async #head(url) {
    const response = await this.#asked("HEAD", url);
    response.close();
    if (BUSY.includes(response.status)) throw this.#refusal(url, response);
    return response.status === 200 ? response : null;
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
    return this.kernel.guard(() => callBehindCircuit(this.circuit, this.kernel.clock, () => this.#readOnce(url, number)));
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
    return { url, number, headers: response.headers, descriptor, size, sha256: digest.digest("hex"), ...this.#origin(url, response) };
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
      ...(page.origin === undefined ? {} : { origin: page.origin }),
    };
  }

  // --- one request ---

  /** @param {"GET" | "HEAD"} method @param {string} url @param {Record<string, string>} [more] */
  #asked(method, url, more = {}) {
    const { address } = this;
    const wording = { address: address.shown(url), secrets: address.secrets() };
    return request(method, address.outgoing(url), { ...address.headers(), ...more }, this.limits.call_timeout_ms, wording, this.kernel.version, this.source.allow);
  }

  /** The address that answered, as it may be shown; nothing where it is the one that was asked. @param {string} url @param {Response} response @returns {{origin?: string}} */
  #origin(url, response) {
    const answered = this.address.shown(response.address);
    return answered === this.address.shown(url) ? {} : { origin: answered };
  }

  /** What the answer stands for: whole or an error, and free of encodings that were not asked for. @param {Response} response @param {string} url @returns {AsyncGenerator<Buffer>} */
  async *#body(response, url) {
    const shown = this.address.shown(url);
    const encoding = encodingOf(response);
    const raw = whole(response, shown, new TransferPace(() => this.kernel.clock.monotonicMs(), this.limits.call_timeout_ms));
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
    return new UpstreamUnavailable(`${this.address.shown(url)} answered ${response.status}.`, { status: response.status, retry_after: response.headers["retry-after"] ?? null, ...wayOut(response.status) });
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

/** The raw bytes; an error where fewer or more came than were announced, or where they trickle. @param {Response} response @param {string} shown @param {TransferPace} pace @returns {AsyncGenerator<Buffer>} */
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

/** Of an answer that stays the same until its cause is gone; none: asking later may help. @param {number} status @returns {{remedy?: string}} */
function wayOut(status) {
  if (status === 404 || status === 410) {
    const rule = `\`not_yet: [${status}]\``;
    return { remedy: `Check the address: \`kfm doctor\` tests it. Where data is published late, list the answer under ${rule} of the source: it is waited for then.` };
  }
  if ([400, 401, 403].includes(status)) return { remedy: "Check the address and its credentials: `kfm doctor` tests them." };
  return {};
}
