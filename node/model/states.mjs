/** State machines as data: `contracts/states/*.json`. */

import { contract } from "./contracts.mjs";
import { IllegalTransition } from "./errors.mjs";

/** @param {string} name @param {string | null} source @param {string} target @param {string} [event] @returns {boolean} */
export function allows(name, source, target, event) {
  return contract(`states/${name}.json`).transitions.some(
    (/** @type {any} */ one) => one.from === source && one.to === target && (event === undefined || event === null || event === one.event),
  );
}

/** @param {string} name @param {string | null} source @param {string} target @param {string} [event] */
export function checkTransition(name, source, target, event) {
  if (allows(name, source, target, event)) return;
  throw new IllegalTransition(`${name}: ${source ?? "nothing"} → ${target}${event ? ` by ${event}` : ""}.`, { machine: name, source, target });
}
