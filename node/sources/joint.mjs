/** Joint sources (`kind: sync`): several sources, one promotion; and the HTTP source, loaded late. */

import { ConfigError } from "../model/errors.mjs";
import { settled } from "./placement.mjs";

/** The HTTP source is loaded when it is first used. @param {any} source @param {any} kernel @param {any} circuit */
export function lazyHttp(source, kernel, circuit) {
  /** @type {any} */
  let made = null;
  const get = async () => {
    made ??= new (await import("./http.mjs")).HttpSource(source, kernel, circuit);
    return made;
  };
  return {
    answersEmpty: true, // nothing is found only where upstream has answered so: 204, or a list of nothing
    discover: async (/** @type {any} */ window) => (await get()).discover(window),
    open: async (/** @type {any} */ found, /** @type {number} */ offset) => (await get()).open(found, offset),
  };
}

/** Several sources, one promotion: each member's objects have a folder of their own. @param {string} sourceId @param {Map<string, any>} members @param {any} limits */
export function syncOf(sourceId, members, limits) {
  return {
    answersEmpty: [...members.values()].every((member) => member.answersEmpty === true),
    discover: async (/** @type {any} */ window) => {
      const all = [];
      for (const [id, member] of members) for (const found of await member.discover(window)) all.push({ ...found, path: `${id}/${found.path}` });
      return settled(sourceId, all, limits);
    },
    open: async (/** @type {any} */ found, /** @type {number} */ offset) => {
      const id = found.path.slice(0, found.path.indexOf("/"));
      const member = members.get(id);
      if (!member) throw new ConfigError(`Sync \`${sourceId}\` has no member \`${id}\`.`);
      const download = await member.open({ ...found, path: found.path.slice(id.length + 1) }, offset);
      return { ...download, found: { ...download.found, path: found.path } };
    },
  };
}
