/** The idempotency ledger, at its documented path. */

export { Ledger } from "../db/ledger.mjs";
export { LedgerReader } from "../db/ledger_reader.mjs";
