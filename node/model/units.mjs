/** The id of a unit of the write-ahead ledger, and the one name that an object has. */

import { canonicalText, sha256Hex } from "./canonical.mjs";
import { UsageError } from "./errors.mjs";
import { MS_MIN } from "./times.mjs";
import { splitUrl, unquote } from "./urls.mjs";
import { head, length, partition, repr } from "./wording.mjs";

const URI_CHARS_MAX = 4096;
const TIME_MAX = 16 ** 13 - 1;
const S3_HOST = /^(?:([a-z0-9][a-z0-9._-]{1,254})\.)?s3(?:-accelerate|-fips|-website)?(?:\.dualstack)?(?:[.-]([a-z0-9-]+))?\.amazonaws\.com(?:\.cn)?$/;
const GCS_HOST = /^(?:([a-z0-9][a-z0-9._-]{1,221})\.)?storage\.(?:googleapis|cloud\.google)\.com$/;
const AZURE_HOST = /^([a-z0-9]{3,24})\.(?:blob|dfs)\.core\.windows\.net$/;
const BUCKET_SCHEMES = /** @type {Record<string, string>} */ ({ s3: "s3", s3a: "s3", s3n: "s3", gs: "gs", az: "az" });

/** @param {string} dataset @param {string} objectUri @param {number | null} startMs */
export function walId(dataset, objectUri, startMs) {
  const since = startMs === null ? 0 : startMs - MS_MIN;
  if (!(since >= 0 && since <= TIME_MAX)) throw new UsageError(`${startMs} ms is before the year 0001 or too far ahead for an id.`);
  const document = canonicalText({ kfm: "wal/1", dataset, object_uri: canonicalObjectUri(objectUri) });
  return `${since.toString(16).padStart(13, "0")}-${sha256Hex(document).slice(0, 20)}`;
}

/** Scheme, bucket and decoded key; no query, no fragment, no region, no credentials. @param {string} uri */
export function canonicalObjectUri(uri) {
  if (!uri || length(uri) > URI_CHARS_MAX) throw new UsageError(`An object's URI has 1 to ${URI_CHARS_MAX} characters.`);
  const [first, separator, rest] = partition(uri, "://");
  const scheme = first.toLowerCase();
  if (!separator) throw new UsageError(`${repr(head(uri, 128))} is not a URI.`);
  const bucketScheme = BUCKET_SCHEMES[scheme];
  if (bucketScheme) {
    const [bucket, , key] = partition(withoutQuery(rest), "/");
    return joined(bucketScheme, bucket, key, uri);
  }
  if (scheme === "abfs" || scheme === "abfss") {
    const [authority, , key] = partition(withoutQuery(rest), "/");
    const [container, , host] = partition(authority, "@");
    const account = AZURE_HOST.exec(host.toLowerCase());
    if (!account) throw new UsageError(`${repr(head(uri, 128))} names no storage account.`);
    return joined("az", /** @type {string} */ (account[1]), `${container}/${key}`, uri);
  }
  if (scheme === "http" || scheme === "https") return fromHttp(scheme, uri);
  if (scheme === "file") return `file://${unquote(withoutQuery(rest))}`;
  throw new UsageError(`${repr(head(uri, 128))} has a scheme that names no object: ${scheme}.`);
}

/** @param {string} scheme @param {string} uri */
function fromHttp(scheme, uri) {
  const parts = splitUrl(uri);
  if (!parts || parts.port === false) throw new UsageError(`${repr(head(uri, 128))} is not a URI.`);
  const host = (parts.hostname ?? "").toLowerCase();
  let path = parts.path.replace(/^\//, "");
  for (const [target, pattern] of /** @type {[string, RegExp][]} */ ([["s3", S3_HOST], ["gs", GCS_HOST]])) {
    const match = pattern.exec(host);
    if (match) {
      let bucket = match[1];
      if (bucket === undefined) [bucket, , path] = partition(path, "/");
      return joined(target, bucket, path, uri);
    }
  }
  const azure = AZURE_HOST.exec(host);
  if (azure) return joined("az", /** @type {string} */ (azure[1]), path, uri);
  if (!host) throw new UsageError(`${repr(head(uri, 128))} names no host.`);
  const usual = scheme === "http" ? 80 : 443;
  const where = parts.port === null || parts.port === usual ? host : `${host}:${parts.port}`;
  return `${scheme}://${where}/${unquote(path)}`;
}

/** @param {string} scheme @param {string} bucket @param {string} key @param {string} uri */
function joined(scheme, bucket, key, uri) {
  if (!bucket || !key) throw new UsageError(`${repr(head(uri, 128))} names no bucket, or no key in it.`);
  return `${scheme}://${unquote(bucket)}/${unquote(key)}`;
}

/** @param {string} text */
const withoutQuery = (text) => partition(partition(text, "?")[0], "#")[0];
