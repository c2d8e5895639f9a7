/** Governance: the policy epoch, the switches, the chained ledger of what people and gates decided. */

import { ZEROS, contentHash, linkHash } from "../model/audit.mjs";
import { StoreCorrupt } from "../model/errors.mjs";
import * as rows from "./rows.mjs";

/** @typedef {import("./sqlite.mjs").Session} Session */
/** @typedef {import("../types.js").GovernanceEntry} Entry */

/** @param {Session} session */
export function heldEpoch(session) {
  session.one("policy.take_part");
  return Number(/** @type {any[]} */ (session.one("policy.epoch"))[0]);
}

/** @param {Session} session @param {any} change */
export function setSwitch(session, change) {
  session.one("policy.keep_others_out");
  const row = /** @type {any[]} */ (session.one("policy.advance"));
  session.all("switches.set", rows.switchParameters(change));
  return Number(row[0]);
}

/** The next rows of the chain; appended last in a transaction. @param {Session} session @param {Entry[]} entries */
export function append(session, entries) {
  if (!entries.length) return;
  const head = session.one("chain_heads.get_for_update");
  if (head === null)
    throw new StoreCorrupt("The audit log does not say where it ends: its head is gone.", {
      remedy: "`kfm audit verify` says more. Stop, and copy the database before anything else.",
    });
  const [seenNumber, seenHash] = head;
  let [number, previous] = [Number(seenNumber), String(seenHash)];
  if (number === 0) [number, previous] = adopt(session);
  for (const entry of entries) {
    number += 1;
    const parameters = rows.entryParameters(entry);
    // What is hashed is what was stored.
    const stored = { ...parameters, details: rows.valueOf(parameters.details) };
    const hash = linkHash(previous, number, contentHash(/** @type {any} */ (stored)));
    if (session.one("governance.append", { number, hash, ...parameters }) === null)
      throw new StoreCorrupt(`The audit log has a row ${number} beyond its end.`, {
        remedy: "`kfm audit verify` says more. Stop, and copy the database before anything else.",
      });
    previous = hash;
  }
  const advanced = session.one("chain_heads.advance", { number, hash: previous, seen_number: seenNumber, seen_hash: seenHash });
  if (advanced === null) throw new Error("the head is ours inside this transaction");
}

/** Chain, in their order, the rows from before there was a chain. @param {Session} session @returns {[number, string]} */
function adopt(session) {
  let [number, previous] = [0, ZEROS];
  for (const row of session.all("governance.unchained")) {
    number = row[0];
    previous = linkHash(previous, number, contentHash(rows.entryFrom(row.slice(1))));
    session.one("governance.adopt", { number, hash: previous });
  }
  return [number, previous];
}
