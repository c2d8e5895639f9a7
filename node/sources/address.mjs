/** The address of an HTTP source: what may be shown, and what is added only when it goes out. */

import { ConfigError, UpstreamUnavailable } from "../core/errors.mjs";
import { MASK, hide, redactUrl, stripParams } from "../core/redact.mjs";
import { isSecretName } from "../core/secret_names.mjs";
import { render } from "../core/templates.mjs";
import { joinUrl, quote, splitUrl, unquote } from "../core/urls.mjs";
import { rpartition } from "../core/wording.mjs";

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

  /** Every secret that goes out, to be looked for in whatever is said about the answer. */
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
  const parts = /** @type {import("../core/urls.mjs").Parts} */ (splitUrl(stripParams(url, Object.keys(params))));
  return joinUrl({ ...parts, query: joined(parts.query, encoded(Object.entries(params))) });
}

/** @param {...string} parts */
const joined = (...parts) => parts.filter(Boolean).join("&");
/** @param {[string, string][]} pairs */
const encoded = (pairs) => pairs.map(([name, value]) => `${quote(name, ":,/")}=${quote(value, ":,/")}`).join("&");
