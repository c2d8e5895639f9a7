/** Bringing a database to the schema of the contracts, one migration and its record at a time. */

import { sha256Text } from "../model/canonical.mjs";
import { LedgerMoved, StoreCorrupt, StoreTooNew } from "../model/errors.mjs";
import { inSqlite, migrationFiles } from "./queries.mjs";

/** @typedef {import("./sqlite.mjs").Session} Session */

/** Marks beside the migrations, with an address in place of a checksum. */
const MOVED = 900_001;
const ARRIVING = 900_002;

/** What the database says it has: version → checksum. @param {Pick<Session, "all" | "one">} session @returns {Map<number, string>} */
export function applied(session) {
  if (session.one("migrations.exists") === null) return new Map();
  return new Map(session.all("migrations.list").map(([version, , digest]) => [version, digest]));
}

/** Refuse a database that these contracts do not understand. @param {Map<number, string>} done */
export function check(done) {
  const known = migrationFiles();
  const newest = /** @type {{version: number}} */ (known.at(-1)).version;
  if (done.has(MOVED)) throw new LedgerMoved(`This ledger has moved to ${done.get(MOVED)}.`);
  if (done.has(ARRIVING))
    throw new LedgerMoved(`This ledger is being filled from ${done.get(ARRIVING)}, and is not in use yet.`, {
      remedy: "The command that fills it (`kfm store copy`, `kfm restore`) goes on where it ended when it is run again.",
    });
  const highest = Math.max(0, ...done.keys());
  if (highest > newest) throw new StoreTooNew(`It is at migration ${highest}; this kfm knows up to ${newest}.`);
  for (const { version, name, text } of known)
    if (done.has(version) && done.get(version) !== sha256Text(text)) throw new StoreCorrupt(`Migration ${version} (${name}) was applied with another text.`);
}

/** @param {Pick<Session, "all" | "one">} session */
export function isCurrent(session) {
  const done = applied(session);
  check(done);
  return done.size === migrationFiles().length;
}

/**
 * Apply what is missing.
 * @param {{session: Session, write: <T>(change: (session: Session) => T) => T, script(sql: string): void}} database @param {number} nowMs
 */
export function migrate(database, nowMs) {
  const done = applied(database.session);
  check(done); // before anything is written
  for (const { version, name, text } of migrationFiles()) {
    if (done.has(version)) continue;
    database.write((session) => {
      session.all("migrations.create");
      const now = applied(session);
      check(now);
      if (now.has(version)) return; // another process was faster
      database.script(inSqlite(text));
      session.all("migrations.insert", { version, name, checksum: sha256Text(text), applied_at_ms: nowMs });
    });
  }
}
