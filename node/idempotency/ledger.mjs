/** The idempotency ledger, at its documented path. */

export { Ledger, LedgerReader } from "../db/ledger.mjs";
