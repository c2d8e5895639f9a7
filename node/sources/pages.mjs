/** Pages of an HTTP API: four styles, one walk, always bounded. */

import { closeSync } from "node:fs";
import { LimitExceeded, UpstreamUnavailable } from "../core/errors.mjs";
import { Reader } from "../objects/files.mjs";
import { withParams } from "./address.mjs";

/** @typedef {import("./http.mjs").Page} Page */

const PAGE_BYTES_MAX = 64 * 1024 * 1024;
const LINK = /<([^<>]*)>\s*((?:;\s*[\w!#$&+.^`|~*-]+\s*(?:=\s*(?:"[^"]*"|[^\s,;"]*))?\s*)*)/g;
const REL = /;\s*rel\s*=\s*(?:"([^"]*)"|([^\s,;"]+))/i;

/** Every page with something on it, in order. @param {any} pagination @param {string} url @param {(address: string, number: number) => Promise<Page | null>} read @param {import("./address.mjs").Address} address @returns {AsyncGenerator<Page>} */
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

/** @param {any} pagination @param {Page} page @param {any} body @param {string} url @param {import("./address.mjs").Address} address @returns {string | null} */
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
