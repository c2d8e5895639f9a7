/** Dataset names in lineage, by OpenLineage's naming conventions. */

import { sha256Hex } from "../model/canonical.mjs";
import { redact } from "../model/redaction.mjs";
import { quote, splitUrl, unquote } from "../model/urls.mjs";
import { head, length, partition, rpartition } from "../model/wording.mjs";

/** @typedef {[string, string]} Name namespace, name */

const NAME_CHARS_MAX = 2048;
const DEFAULT_PORTS = /** @type {Record<string, number>} */ ({ http: 80, https: 443 });
const BUCKETS = new Set(["s3", "gs", "az", "abfs", "abfss", "wasb", "wasbs"]);
const ALIASES = /** @type {Record<string, string>} */ ({ s3a: "s3", s3n: "s3", gcs: "gs", postgresql: "postgres" });

/** Namespace and name of what a URI leads to. Relative files are seen from a folder. @param {string} uri @param {string} [folder] @returns {Name} */
export function datasetName(uri, folder = "") {
  const match = /^([A-Za-z][A-Za-z0-9+.-]*):([\s\S]*)$/.exec(uri);
  if (!match) return bounded(uri.startsWith("/") ? "file" : "kfm", redact(uri) || "/");
  const given = /** @type {string} */ (match[1]).toLowerCase();
  const scheme = ALIASES[given] ?? given;
  const parts = splitUrl(uri);
  if (!parts) return bounded("kfm", redact(uri));
  const authority = authorityOf(parts.netloc, scheme);
  if (scheme === "file") {
    const path = unquote(parts.path) || "/";
    return bounded("file", folder && !path.startsWith("/") ? `${folder}/${path}` : path);
  }
  if (!authority) return bounded(scheme, redact(partition(partition(/** @type {string} */ (match[2]), "?")[0], "#")[0]) || "/");
  if (BUCKETS.has(scheme)) return bounded(`${scheme}://${authority}`, unquote(parts.path).replace(/^\//, "") || "/");
  if (scheme === "postgres") return bounded(`postgres://${authority}`, parts.path.replace(/^\/+|\/+$/g, "").replaceAll("/", ".") || "/");
  return bounded(`${scheme}://${authority}`, redact(parts.path) || "/");
}

/** The name of a file of a dataset. @param {Name} dataset @param {string} path @returns {Name} */
export function below([namespace, name], path) {
  return bounded(namespace, name ? `${name.replace(/\/+$/, "")}/${path}` : path);
}

/** An address for a namespace: the namespace itself, where it is one. @param {string} namespace */
export function sourceUri(namespace) {
  if (namespace === "file") return "file:///";
  return namespace.includes("://") ? quote(namespace, ":/@[]%~+-._!$&'()*,;=") : `urn:kfm:namespace:${quote(namespace, "")}`;
}

/** @param {string} netloc @param {string} scheme */
function authorityOf(netloc, scheme) {
  let host = rpartition(netloc, "@")[2];
  let port = "";
  if (BUCKETS.has(scheme)) return host; // the case of a bucket's name counts
  if (!host.endsWith("]")) {
    const [before, colon, tail] = rpartition(host, ":");
    if (colon && /^\d*$/.test(tail)) [host, port] = [before, tail];
  }
  if (scheme === "postgres") return host ? `${host.toLowerCase()}:${port || 5432}` : "";
  return port && Number(port) !== DEFAULT_PORTS[scheme] ? `${host.toLowerCase()}:${port}` : host.toLowerCase();
}

/** @param {string} namespace @param {string} name @returns {Name} */
const bounded = (namespace, name) => [cut(namespace), cut(name)];

/** @param {string} text */
function cut(text) {
  return length(text) <= NAME_CHARS_MAX ? text : `${head(text, NAME_CHARS_MAX - 17)}~${sha256Hex(text).slice(0, 16)}`;
}
