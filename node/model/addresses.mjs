/** Which addresses a request may connect to: public ones, and private ones that the configuration names. */

import { BlockList, isIPv4, isIPv6 } from "node:net";
import { head } from "./wording.mjs";

/** @typedef {{hosts: Set<string>, networks: BlockList}} Reach what may be connected to beside public addresses */
/** @typedef {{text: string, family: "ipv4" | "ipv6"}} Address */

const NOT_PUBLIC_4 =
  "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4";
const LOCAL_ENDINGS = [".localhost", ".local", ".internal", ".home.arpa"];
const HOST = /^(?=.{1,253}$)[a-z0-9_][a-z0-9_-]{0,62}(\.[a-z0-9_][a-z0-9_-]{0,62})*$/;

/** @param {string} ranges */
function listOf(ranges) {
  const list = new BlockList();
  for (const range of ranges.split(" ")) add(list, range);
  return list;
}

const PRIVATE_4 = listOf(NOT_PUBLIC_4);
const UNICAST_6 = listOf("2000::/3");
const PRIVATE_6 = listOf("2001::/23 2001:db8::/32 2002::/16 3fff::/20");
const NAT64 = listOf("64:ff9b::/96");
const MAPPED = listOf("::ffff:0:0/96");

/** @param {BlockList} list @param {string} entry @returns {boolean} is it an address or a range? */
function add(list, entry) {
  const [text, length, more] = /** @type {[string, string | undefined, string | undefined]} */ (entry.split("/"));
  const family = isIPv4(text) ? "ipv4" : isIPv6(text) ? "ipv6" : null;
  if (!family || more !== undefined) return false;
  if (length === undefined) {
    const plain = /** @type {Address} */ (parseAddress(text));
    list.addAddress(plain.text, plain.family);
    return true;
  }
  if (!/^[0-9]{1,3}$/.test(length) || Number(length) > (family === "ipv4" ? 32 : 128)) return false;
  list.addSubnet(text, Number(length), family);
  return true;
}

/** An address by its digits, an IPv4 address inside an IPv6 one as that; null for a name. @param {string} given @returns {Address | null} */
export function parseAddress(given) {
  const text = /** @type {string} */ (given.replace(/^\[+|\]+$/g, "").split("%")[0]);
  if (isIPv4(text)) return { text, family: "ipv4" };
  if (!isIPv6(text)) return null;
  if (NAT64.check(text, "ipv6") || MAPPED.check(text, "ipv6")) {
    const [high, low] = /** @type {[number, number]} */ (groups(text).slice(6));
    return { text: [high >> 8, high & 255, low >> 8, low & 255].join("."), family: "ipv4" };
  }
  return { text, family: "ipv6" };
}

/** The eight groups of an IPv6 address. @param {string} text */
function groups(text) {
  const plain = new URL(`http://[${text}]/`).hostname.slice(1, -1); // without dotted parts
  const [before, after] = plain.split("::").map((part) => (part ? part.split(":").map((group) => Number.parseInt(group, 16)) : []));
  if (!before || !after) return before ?? [];
  return [...before, ...Array(8 - before.length - after.length).fill(0), ...after];
}

/** @param {Address} address */
export function isPublic({ text, family }) {
  if (family === "ipv4") return !PRIVATE_4.check(text, family);
  return UNICAST_6.check(text, family) && !PRIVATE_6.check(text, family);
}

/** @param {string} host */
export const plainHost = (host) => host.toLowerCase().replace(/\.+$/, "");

/** @param {string} host */
export function isLocalName(host) {
  const name = plainHost(host);
  return !name.includes(".") || LOCAL_ENDINGS.some((ending) => name.endsWith(ending));
}

/**
 * Of a request to `host`, as the configuration has it. An address, or a name that is local by its form, says itself that
 * it is private. Where any other name leads is said by a name server: it needs `allow`.
 * @param {string} host @param {string[]} [allow] @returns {Reach}
 */
export function reachOf(host, allow = []) {
  const entries = parseAddress(host) || isLocalName(host) ? [...allow, host.replace(/^\[|\]$/g, "")] : allow;
  const networks = new BlockList();
  const hosts = new Set(entries.filter((entry) => !add(networks, entry)).map(plainHost));
  return { hosts, networks };
}

/** May `host` be reached at this address, to which its name was resolved? @param {Reach} reach @param {string} host @param {string} given */
export function permits(reach, host, given) {
  const address = parseAddress(given);
  if (!address) return false;
  return isPublic(address) || reach.hosts.has(plainHost(host)) || reach.networks.check(address.text, address.family);
}

/** What is wrong with one entry of `allow`. @param {string} entry @returns {string | null} */
export function allowProblem(entry) {
  if (add(new BlockList(), entry) || HOST.test(entry.toLowerCase())) return null;
  return `\`${head(entry, 60)}\` is no host, address or range such as \`10.1.0.0/16\``;
}
