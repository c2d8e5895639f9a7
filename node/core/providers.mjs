/** Who is called for a source: the name that its circuit breaker goes by. Pure. */

import { splitUrl } from "./urls.mjs";

export const PROVIDER_CHARS_MAX = 200;

/** @param {string} text */
export const isProviderName = (text) => text.length <= PROVIDER_CHARS_MAX && /^[!-~]+$/.test(text);

/** Its own `provider`, else the host of its URL; null where nobody outside is called. @param {any} source @returns {string | null} */
export function providerOf(source) {
  if (source.provider !== null) return source.provider;
  if (!source.url) return null;
  const parts = splitUrl(source.url);
  const host = parts && parts.port !== false ? parts.hostname : null;
  if (!parts || !host || host.includes("{")) return null;
  const usual = /** @type {Record<string, number>} */ ({ http: 80, https: 443 })[parts.scheme];
  return parts.port === null || parts.port === usual ? host : `${host}:${parts.port}`;
}

/** Everybody who is called for a source: of a sync, those of its members, each once. @param {any} source @param {(id: string) => any} find @returns {string[]} */
export function providersOf(source, find) {
  const members = source.members.length ? source.members.map(find) : [source];
  const named = members.map(providerOf).filter((/** @type {string | null} */ one) => one !== null);
  return [...new Set(/** @type {string[]} */ (named))];
}
