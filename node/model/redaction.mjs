/** Redaction and masking: secrets removed from text in every spelling; names of datasets replaced in everything public. */

import { createHmac } from "node:crypto";
import { joinUrl, quote, splitUrl, unquote, unquotePlus } from "./urls.mjs";
import { byPoints, head, length, partition, repr, rpartition } from "./wording.mjs";

// --- names of secrets --------------------------------------------------------------------

export const SECRET_WORDS =
  "(?:token|secret|signature|password|passwd|passphrase|pwd|credentials?|authorization" +
  "|(?:api|access|account|subscription|private|shared|signing|storage|client|auth)[_-]?key(?:[_-]?id)?)";
// `.*[a-z](?=[A-Z])` ignores case in Python, too: any two alphabetic characters.
const SECRET_NAME = new RegExp(`^(?:(?:|.*[^a-z]|.*[a-z](?=[A-Z]))${SECRET_WORDS}s?|(?:key|sig|sas|auth|pass))$`, "i");

/** @param {string} name */
export function isSecretName(name) {
  return SECRET_NAME.test(name);
}

// --- spellings of a secret ---------------------------------------------------------------

export const MASK = "***";
const SECRET_CHARS_MIN = 4;
const SECRETS_MAX = 1000;
const PART_CHARS_MIN = 8;
const QUOTED_CHARS_MAX = 256;
const QUOTED_CHAR_CHARS_MAX = 12;
const STANDARD = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const HTML = /** @type {Record<string, string>} */ ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;" });
const NAMED = /** @type {Record<string, string>} */ ({ '"': '\\"', "\\": "\\\\", "/": "\\/", "\n": "\\n", "\r": "\\r", "\t": "\\t", "'": "\\'" });

/** @typedef {{core: string, pattern: RegExp | null}} Spelling */

/** @param {string} text */
const escaped = (text) => text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");

/** Masks a fixed set of secrets in any text. */
export class Redactor {
  /** @param {Iterable<string>} secrets */
  constructor(secrets) {
    const wanted = new Set();
    for (const secret of secrets) for (const part of partsOf(secret)) if (length(part) >= SECRET_CHARS_MIN) wanted.add(part);
    /** @type {string[]} */
    this.secrets = [...wanted].sort((a, b) => length(b) - length(a) || byPoints(a, b)).slice(0, SECRETS_MAX);
    const plain = new Set();
    /** @type {Spelling[]} */
    const around = [];
    for (const secret of this.secrets) {
      for (const form of fixed(secret)) plain.add(form);
      around.push(...base64(Buffer.from(secret)));
    }
    const found = [...[...plain].map((core) => ({ core, pattern: null })), ...around];
    this.spellings = found.sort((a, b) => length(b.core) - length(a.core) || byPoints(a.core, b.core));
    /** @type {RegExp[] | null} */
    this.quoted = null;
    const quoted = this.secrets.filter((each) => length(each) <= QUOTED_CHARS_MAX).map((each) => length(each) * QUOTED_CHAR_CHARS_MAX);
    this.charsMax = Math.max(0, ...found.map((one) => length(one.core) + 4), ...quoted);
  }

  get cores() {
    return this.spellings.map((one) => one.core);
  }

  /** @param {string} given */
  hide(given) {
    let text = given;
    for (const { core, pattern } of this.spellings) if (text.includes(core)) text = pattern ? text.replace(pattern, MASK) : text.replaceAll(core, MASK);
    if (this.secrets.length && /[%\\&+]/.test(text)) {
      this.quoted ??= this.secrets.filter((each) => length(each) <= QUOTED_CHARS_MAX).map((each) => new RegExp(Array.from(each, character).join(""), "gu"));
      for (const quoted of this.quoted) text = text.replace(quoted, MASK);
    }
    return text;
  }
}

/** The secret, and what of it is one by itself. @param {string} secret @returns {Set<string>} */
export function partsOf(secret) {
  const parts = new Set([secret]);
  if (secret.includes("://")) for (const part of addressParts(secret)) parts.add(part);
  const words = secret.split(/\s+/).filter(Boolean);
  if (words.length > 1) {
    for (const part of [...words, ...secret.split(/\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/)]) if (length(part) >= PART_CHARS_MIN) parts.add(part);
    if (/** @type {string} */ (words[0]).toLowerCase() === "basic") for (const part of basicParts(/** @type {string} */ (words[1]))) parts.add(part);
  }
  if (secret.trimStart().startsWith("{")) for (const part of jsonParts(secret)) parts.add(part);
  return parts;
}

/** @param {string} secret */
function addressParts(secret) {
  const parts = splitUrl(secret);
  if (!parts) return [];
  const user = rpartition(parts.netloc, "@")[0];
  let found = [partition(user, ":")[2]];
  if (!user.includes(":") && ["http", "https"].includes(parts.scheme)) found = [user];
  for (const pair of parts.query.split("&")) {
    const [name, , value] = partition(pair, "=");
    if (isSecretName(unquote(name))) found.push(value);
  }
  return found.filter(Boolean).flatMap((value) => [value, unquote(value)]);
}

/** @param {string} word */
function basicParts(word) {
  if (word.length % 4 || !/^[A-Za-z0-9+/]*={0,2}$/.test(word)) return [];
  const text = Buffer.from(word, "base64").toString();
  return text.includes("\ufffd") ? [] : [text, partition(text, ":")[2]].filter(Boolean);
}

/** @param {string} secret */
function jsonParts(secret) {
  /** @type {string[]} */
  const found = [];
  const visit = (/** @type {any} */ value) => {
    if (Array.isArray(value)) value.forEach(visit);
    else if (value && typeof value === "object")
      for (const [name, each] of Object.entries(value)) {
        if (typeof each === "string" && isSecretName(name)) found.push(each, ...each.split(/\r?\n/));
        visit(each);
      }
  };
  try {
    visit(JSON.parse(secret));
  } catch {
    return [];
  }
  return found.filter((part) => length(part) >= PART_CHARS_MIN);
}

/** @param {string} secret */
function fixed(secret) {
  const digits = Buffer.from(secret).toString("hex");
  const json = JSON.stringify(secret).slice(1, -1);
  const ascii = json.replace(/[\u0080-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
  const bytes = Array.from(Buffer.from(secret), (byte) => (byte < 128 ? repr(String.fromCharCode(byte)).slice(1, -1) : `\\x${byte.toString(16)}`)).join("");
  const forms = new Set([secret, digits, digits.toUpperCase(), repr(secret).slice(1, -1), bytes, ascii, json, Array.from(secret, (char) => HTML[char] ?? char).join(""), quote(secret, "")]);
  if (length(secret) >= PART_CHARS_MIN) forms.add(Array.from(secret).reverse().join(""));
  return forms;
}

/** The secret inside a longer encoded text, at each of the three places it can begin in a group. @param {Buffer} data @returns {Spelling[]} */
function base64(data) {
  /** @type {Map<string, Spelling>} */
  const found = new Map();
  for (let lead = 0; lead < 3; lead += 1) {
    const bits = data.length * 8;
    const first = Math.ceil((lead * 8) / 6);
    const last = Math.floor((lead * 8 + bits) / 6);
    const text = Buffer.concat([Buffer.alloc(lead), data, Buffer.alloc(2)]).toString("base64");
    const core = text.slice(first, last);
    const before = (lead * 8) % 6 ? sharing(/** @type {string} */ (text[first - 1]), 6 * first - lead * 8, true) : "";
    const ours = (lead * 8 + bits) % 6;
    const after = ours ? sharing(/** @type {string} */ (text[last]), ours, false) : "";
    for (const safe of [false, true]) {
      const turn = (/** @type {string} */ part) => (safe ? part.replaceAll("+", "-").replaceAll("/", "_") : part);
      const body = turn(core);
      found.set(`${lead}${body}`, { core: body, pattern: new RegExp(`${turn(before)}${escaped(body)}${turn(after)}={0,2}`, "g") });
    }
  }
  return [...found.values()];
}

/** A class of the characters that have these bits in common with the given one. @param {string} char @param {number} bits @param {boolean} low */
function sharing(char, bits, low) {
  const value = STANDARD.indexOf(char);
  const mask = low ? (1 << bits) - 1 : 63 ^ ((1 << (6 - bits)) - 1);
  const members = Array.from(STANDARD).filter((_, index) => (index & mask) === (value & mask)).sort();
  return `[${members.join("")}]`;
}

/** A character quoted as addresses, JSON, Python or HTML do. @param {string} char */
function character(char) {
  const point = /** @type {number} */ (char.codePointAt(0));
  const forms = [Array.from(Buffer.from(char), (byte) => anyCase("%", byte.toString(16).padStart(2, "0"))).join("")];
  forms.push(Array.from({ length: char.length }, (_, at) => anyCase("\\\\u", char.charCodeAt(at).toString(16).padStart(4, "0"))).join(""));
  if (point < 256) forms.push(anyCase("\\\\x", point.toString(16).padStart(2, "0")));
  if (NAMED[char]) forms.push(escaped(NAMED[char]));
  if (char === " ") forms.push("\\+");
  if (HTML[char]) forms.push(escaped(HTML[char]));
  forms.push(escaped(char));
  return `(?:${[...new Set(forms)].join("|")})`;
}

/** @param {string} start @param {string} digits */
function anyCase(start, digits) {
  return start + Array.from(digits, (digit) => (/[a-f]/.test(digit) ? `[${digit}${digit.toUpperCase()}]` : digit)).join("");
}

// --- redaction ---------------------------------------------------------------------------

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

/** Redaction with the secrets of one process. */
export class SecretRedaction {
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

  /** A text for the records: without secrets, places and personal data, and bounded. @param {string} text */
  redact(text) {
    return freeText(kept(text, this.redactor));
  }

  /** A reason that a person gave: what looks like a secret is masked, too. A mail address alone is a name. @param {string} given */
  redactReason(given) {
    const text = shapeless(this.redactor.hide(given));
    return ONE_MAIL.test(text) ? text : freeText(text);
  }

  /** Does a document contain a known secret? @param {any} value @returns {boolean} */
  leaks(value) {
    if (typeof value === "string") return this.redactor.hide(value) !== value;
    if (Array.isArray(value)) return value.some((each) => this.leaks(each));
    if (value && typeof value === "object") return Object.entries(value).some(([name, each]) => this.leaks(name) || this.leaks(each));
    return false;
  }
}

// --- places and persons --------------------------------------------------------------------

export const COORDINATES = "[coordinates removed]";
const PERSONAL_NUMBER = "[personal number removed]";
const PHONE = "[phone number removed]";
const PROSE_CHARS_MAX = 4000;
const PHONE_DIGITS_MIN = 9;
const MAIL = "(?<![\\p{L}\\p{N}_.+-])[\\p{L}\\p{N}_.+-]{1,64}@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\\.){1,8}[A-Za-z]{2,24}(?![\\p{L}\\p{N}_-])";
const MAILS = new RegExp(MAIL, "gu");
const ONE_MAIL = new RegExp(`^(?:${MAIL})$`, "u");
const W = "\\p{L}\\p{N}_";
const S = "[ \\t\\n\\r\\f\\v]";
const DECIMAL = "[-+\\u2212]?[0-9]{1,3}\\.[0-9]{3,}";
const ENDS = `(?![${W}%]|\\.[0-9]|:[0-9]| ?(?:[kMGT]?i?B|[num]?s|min|h|Hz|Wh|J|%)(?![${W}]))`;
const PAIRS = new RegExp(`(?<![${W}.:+-])${DECIMAL}(?:(?:${S}{0,3}[,;/]${S}{0,3}|${S}{1,3}|${S}{0,3}\\]${S}{0,3},${S}{0,3}\\[${S}{0,3})${DECIMAL})+${ENDS}`, "gu");
const NUMBERS = new RegExp(DECIMAL, "gu");
const NAMED_DEGREES = new RegExp(`(?<![${W}])((?:lat(?:itude)?|lon(?:gitude)?|lng)["']?${S}{0,3}(?:[:=]|is)?${S}{0,3}["']?)[-+\\u2212]?[0-9]{1,3}\\.[0-9]+`, "giu");
const DEGREES = new RegExp(
  `(?<![${W}.])[0-9]{1,3}(?:\\.[0-9]+)?${S}?\\u00b0${S}?(?:[0-9]{1,2}(?:\\.[0-9]+)?${S}?['\\u2032\\u2019]${S}?)?(?:[0-9]{1,2}(?:\\.[0-9]+)?${S}?["\\u2033\\u201d]${S}?)?[NSEWnsew](?![${W}])` +
    `|(?<![${W}.])[0-9]{1,3}\\.[0-9]{2,}${S}?[NSEW](?![${W}])|(?<![${W}])[NSEW]${S}?[0-9]{1,3}\\.[0-9]{3,}(?![${W}.])`,
  "gu",
);
const SHAPE = new RegExp(`(?<![${W}])(?:multi)?(?:point|linestring|polygon)${S}{0,3}(?:zm?|m)?${S}{0,3}\\((?:[-+0-9.,()e]|${S}){3,}\\)`, "giu");
const NAMED_NUMBER = new RegExp(
  `(?<![${W}])((?:ssn|social security|passport|tribal (?:id|enrol{1,2}ment)|enrol{1,2}ment|date of birth|dob|phone|telephone)(?: (?:number|no\\.?|nr\\.?|id))?["']?${S}{0,3}(?:[:=#]|is)?${S}{0,3}["']?)` +
    "(?=[A-Z]{0,3}[0-9])[A-Z0-9][A-Z0-9/.()+-]{0,24}(?: [0-9][0-9.-]{1,8}){0,4}",
  "giu",
);
const SSN = new RegExp(`(?<![${W}-])[0-9]{3}-[0-9]{2}-[0-9]{4}(?![${W}-])`, "gu");
const PHONES = new RegExp(
  `(?<![${W}.+-])\\+[1-9][0-9]{0,2}(?:[ ().-]{1,2}[0-9]{1,4}){2,6}(?![${W}-])|(?<![${W}.+-])\\+[1-9][0-9]{9,12}(?![${W}-])` +
    `|(?<![${W}.-])(?:\\([2-9][0-9]{2}\\) ?|[2-9][0-9]{2}[ .-])[2-9][0-9]{2}[.-][0-9]{4}(?![${W}-])`,
  "gu",
);

/** Prose without the places and persons that it may quote from data, bounded; what was removed is said. @param {string} given @returns {string} */
export function freeText(given) {
  let text = given.includes("@") ? given.replace(MAILS, "[mail address removed]") : given;
  if (/[0-9]/.test(text))
    text = text
      .replace(SHAPE, COORDINATES)
      .replace(NAMED_DEGREES, `$1${COORDINATES}`)
      .replace(DEGREES, COORDINATES)
      .replace(PAIRS, (found) => (arePlaces(found) ? COORDINATES : found))
      .replace(NAMED_NUMBER, `$1${PERSONAL_NUMBER}`)
      .replace(SSN, PERSONAL_NUMBER)
      .replace(PHONES, (found) => (found.replace(/[^0-9]/g, "").length >= PHONE_DIGITS_MIN ? PHONE : found));
  const chars = length(text);
  if (chars <= PROSE_CHARS_MAX) return text;
  return `${head(text, PROSE_CHARS_MAX)}… [${(chars - PROSE_CHARS_MAX).toLocaleString("en-US")} characters removed]`;
}

/** Decimals side by side: in the range of degrees, and not all of them below one. @param {string} text */
function arePlaces(text) {
  const numbers = (text.match(NUMBERS) ?? []).map((one) => Math.abs(Number(one.replace("\u2212", "-"))));
  const degrees = numbers.slice(1).every((each, index) => Math.min(each, /** @type {number} */ (numbers[index])) <= 90 && Math.max(each, /** @type {number} */ (numbers[index])) <= 180);
  return degrees && Math.max(...numbers) >= 1;
}

// --- masking of dataset names ------------------------------------------------------------

export const MASK_KEY = "mask_key";

/** @param {string} name @param {string | null} key */
export function mask(name, key) {
  if (key === null) return "masked";
  return `masked-${createHmac("sha256", key).update(name).digest("hex").slice(0, 12)}`;
}

/** Must its name be kept out of everything public? @param {any} dataset @returns {boolean} */
export function isMasked(dataset) {
  const rights = dataset.rights;
  if (!rights || ["restricted", "blocked"].includes(rights.care.level)) return true;
  return Boolean(rights.sovereignty) && rights.sovereignty.consent !== "granted";
}

/** Every name that would give a masked dataset away, by its dataset. @param {any} settings @param {(source: any) => string[]} providers @returns {Record<string, string[]>} */
export function namesByDataset(settings, providers) {
  /** @type {Record<string, string[]>} */
  const found = {};
  for (const dataset of settings.datasets) if (isMasked(dataset)) found[dataset.id] = [dataset.id, dataset.title ?? "", dataset.domain].filter((name) => name && name !== "general");
  for (const source of settings.sources) found[source.dataset]?.push(source.id, ...providers(source));
  return found;
}
