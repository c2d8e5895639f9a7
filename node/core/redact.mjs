/** What must never be printed, stored or published, taken out of addresses and text. */

import { SECRET_WORDS, isSecretName } from "./secret_names.mjs";
import { MASK, Redactor } from "./spellings.mjs";
import { joinUrl, splitUrl, unquotePlus } from "./urls.mjs";
import { head, length, partition, rpartition } from "./wording.mjs";

export { MASK };

const TEXT_CHARS_MAX = 8192;
const READ_CHARS_MAX = 8 * TEXT_CHARS_MAX;
const URL_ = /\b[a-zA-Z][a-zA-Z0-9+.-]{1,30}:\/\/[^\s"'<>`]+/g;
const HEADER =
  /\b((?:proxy-)?authorization|cookie|set-cookie|x-api-key|x-amz-security-token|x-kfm-signature|webhook-signature|x-hub-signature(?:-256)?)(["']?\s*[:=]\s*)[^\r\n]+/gi;
const SCHEME = /\b(bearer|basic|token)\s+[a-z0-9._~+/=-]{8,}/gi;
const SCHEME_SAID = /\b(bearer|basic|token)\s+(?=[a-z._~+/=-]*[0-9])[a-z0-9._~+/=-]{8,}/gi;
const ASSIGNED = new RegExp(
  `(["']?)\\b([a-z0-9_.-]{0,40}${SECRET_WORDS}s?)\\b(["']?\\s*[:=]\\s*)(?:"(?:[^"\\\\\\r\\n]|\\\\.)*"?|'(?:[^'\\\\\\r\\n]|\\\\.)*'?|[^\\s"',;&)}\\]]+)`,
  "gi",
);
const SHAPES = new RegExp(
  "\\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}\\b" +
    "|\\bwhsec_[A-Za-z0-9+/=_-]+" +
    "|\\b(?:gh[pousr]|github_pat)_[A-Za-z0-9_]{20,}" +
    "|\\beyJ[A-Za-z0-9_-]{8,}\\.[A-Za-z0-9_-]{8,}\\.[A-Za-z0-9_-]*" +
    "|(?<![A-Za-z0-9/+])(?=[A-Za-z0-9/+]{0,39}[/+])(?=[A-Za-z0-9/+]{0,39}[A-Z])(?=[A-Za-z0-9/+]{0,39}[0-9])" +
    "[A-Za-z0-9+][A-Za-z0-9/+]{39}(?![A-Za-z0-9/+=])",
  "g",
);

/** The address without user and password, with secret parameters masked. @param {string} url */
export function redactUrl(url) {
  const parts = splitUrl(url);
  if (!parts) return MASK;
  const query = parts.query
    .split("&")
    .map((pair) => {
      const [name, equals] = partition(pair, "=");
      return equals && isSecretName(unquotePlus(name)) ? `${name}=${MASK}` : pair;
    })
    .join("&");
  return joinUrl({ ...parts, netloc: rpartition(parts.netloc, "@")[2], query });
}

/** The address without the parameters of these names. @param {string} url @param {Iterable<string>} names */
export function stripParams(url, names) {
  const unwanted = new Set(names);
  const parts = splitUrl(url);
  if (!parts) throw new TypeError("no address");
  const kept = parts.query.split("&").filter((pair) => pair && !unwanted.has(unquotePlus(partition(pair, "=")[0])));
  return joinUrl({ ...parts, query: kept.join("&") });
}

/** @param {string} text @param {RegExp} scheme */
function masked(text, scheme) {
  return text
    .replace(URL_, (found) => redactUrl(found))
    .replace(HEADER, `$1$2${MASK}`)
    .replace(scheme, `$1 ${MASK}`)
    .replace(ASSIGNED, `$1$2$3${MASK}`)
    .replace(SHAPES, MASK);
}

/** Everything of a secret's shape masked and nothing cut. @param {string} text */
export const shapeless = (text) => masked(text, SCHEME_SAID);

/** @param {string} given @param {Redactor | null} hiding */
function kept(given, hiding) {
  let text = given;
  if (hiding) {
    const limit = READ_CHARS_MAX + hiding.charsMax;
    if (text.length <= limit) text = hiding.hide(text);
    else {
      const cut = hiding.hide(text.slice(0, limit));
      text = `${hiding.charsMax ? cut.slice(0, -hiding.charsMax) : cut}…`;
    }
  }
  if (length(text) > TEXT_CHARS_MAX) text = `${head(text, TEXT_CHARS_MAX)}…`;
  return masked(text, SCHEME);
}

/** Text that may be kept: everything of a secret's shape masked, length bounded. @param {string} text @param {string[]} [secrets] */
export function redact(text, secrets = []) {
  return kept(text, secrets.length ? new Redactor(secrets) : null);
}

/** These secrets masked, however they are spelt. @param {string} text @param {string[]} secrets */
export function hide(text, secrets) {
  return secrets.length ? new Redactor(secrets).hide(text) : text;
}

/** A document in which every text, names included, was cleaned. @param {any} value @param {(text: string) => string} clean @returns {any} */
export function within(value, clean) {
  if (typeof value === "string") return clean(value);
  if (Array.isArray(value)) return value.map((each) => within(each, clean));
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([name, each]) => [clean(name), within(each, clean)]));
  return value;
}

/** `redact` for the secrets of one process. */
export class Discretion {
  /** @param {() => string[]} gather asked when first needed */
  constructor(gather) {
    this.gather = gather;
    /** @type {Redactor | null} */
    this.made = null;
  }

  get redactor() {
    this.made ??= new Redactor(this.gather());
    return this.made;
  }

  /** Only known secrets are masked, and nothing is cut. @param {string} text */
  hide(text) {
    return this.redactor.hide(text);
  }

  /** @param {string} text */
  redact(text) {
    return kept(text, this.redactor);
  }

  /** What a person gives as a reason. @param {string} text */
  said(text) {
    return shapeless(this.redactor.hide(text));
  }

  /** Does a document tell a known secret? @param {any} value @returns {boolean} */
  leaks(value) {
    if (typeof value === "string") return this.redactor.hide(value) !== value;
    if (Array.isArray(value)) return value.some((each) => this.leaks(each));
    if (value && typeof value === "object") return Object.entries(value).some(([name, each]) => this.leaks(name) || this.leaks(each));
    return false;
  }
}
