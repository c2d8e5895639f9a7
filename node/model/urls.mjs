/** Addresses taken apart and put together as Python's urllib.parse does. */

import { partition, rpartition } from "./wording.mjs";

/** @typedef {{scheme: string, netloc: string, path: string, query: string, fragment: string, hostname: string | null, port: number | null | false, username: string | null, password: string | null}} Parts */

/** urlsplit; null where Python refuses. @param {string} given @returns {Parts | null} */
export function splitUrl(given) {
  // eslint-disable-next-line no-control-regex
  let url = given.replace(/^[\x00-\x20]+/, "").replace(/[\t\r\n]/g, "");
  let scheme = "";
  const found = /^([A-Za-z][A-Za-z0-9+.-]*):/.exec(url);
  if (found) {
    scheme = /** @type {string} */ (found[1]).toLowerCase();
    url = url.slice(found[0].length);
  }
  let netloc = "";
  if (url.startsWith("//")) {
    const end = url.slice(2).search(/[/?#]/);
    netloc = end < 0 ? url.slice(2) : url.slice(2, end + 2);
    url = end < 0 ? "" : url.slice(end + 2);
    if (netloc.includes("[") !== netloc.includes("]")) return null;
  }
  let fragment = "";
  let query = "";
  if (url.includes("#")) [url, , fragment] = partition(url, "#");
  if (url.includes("?")) [url, , query] = partition(url, "?");
  return { scheme, netloc, path: url, query, fragment, ...authority(netloc) };
}

/** @param {string} netloc @returns {{hostname: string | null, port: number | null | false, username: string | null, password: string | null}} */
function authority(netloc) {
  const [user, at, place] = rpartition(netloc, "@");
  let username = null;
  let password = null;
  if (at) {
    const [name, colon, secret] = partition(user, ":");
    username = name;
    password = colon ? secret : null;
  }
  let host = place;
  let portText = "";
  const bracket = /^\[([^\]]*)\](.*)$/.exec(place);
  if (bracket) {
    host = /** @type {string} */ (bracket[1]);
    portText = partition(/** @type {string} */ (bracket[2]), ":")[2];
  } else if (place.includes(":")) [host, , portText] = partition(place, ":");
  /** @type {number | null | false} */
  let port = null;
  if (portText) port = /^[0-9]+$/.test(portText) && Number(portText) <= 65_535 ? Number(portText) : false;
  return { hostname: host ? host.toLowerCase() : null, port, username, password };
}

/** urlunsplit. @param {{scheme: string, netloc: string, path: string, query: string, fragment?: string}} parts */
export function joinUrl({ scheme, netloc, path, query, fragment = "" }) {
  let url = path;
  if (netloc || (url.startsWith("//") && scheme)) {
    if (url && !url.startsWith("/")) url = `/${url}`;
    url = `//${netloc}${url}`;
  }
  if (scheme) url = `${scheme}:${url}`;
  if (query) url += `?${query}`;
  if (fragment) url += `#${fragment}`;
  return url;
}

/** urllib's quote. @param {string} text @param {string} [safe] */
export function quote(text, safe = "/") {
  let out = "";
  for (const char of text.toWellFormed()) {
    if (/[A-Za-z0-9_.~-]/.test(char) || safe.includes(char)) out += char;
    else for (const byte of Buffer.from(char, "utf8")) out += `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  return out;
}

/** urllib's unquote: each run of escapes as UTF-8, what is none replaced. @param {string} text */
export function unquote(text) {
  return text.replace(/(?:%[0-9a-fA-F]{2})+/g, (run) => Buffer.from(run.replaceAll("%", ""), "hex").toString("utf8"));
}

/** @param {string} text */
export const unquotePlus = (text) => unquote(text.replaceAll("+", " "));
