/** Bringing a database to the schema of the contracts, one migration and its record at a time. */

import { sha256Text } from "../model/canonical.mjs";
import { LedgerMoved, StoreCorrupt, StoreTooNew } from "../model/errors.mjs";
import { inSqlite, migrationFiles } from "./queries.mjs";

/** @typedef {import("./sqlite.mjs").Session} Session */

/** Marks beside the migrations, with an address in place of a checksum. */
const MOVED = 900_001;
const ARRIVING = 900_002;
/** The migration that made `schema_level`; from it on each says in its first line what it is. */
const LEVELS = 47;
const DECLARATION = /^-- (expand|contract)(?: from (\d+))?: \S/;

/** What the database says it has: version → checksum. @param {Pick<Session, "all" | "one">} session @returns {Map<number, string>} */
export function applied(session) {
  if (session.one("migrations.exists") === null) return new Map();
  return new Map(session.all("migrations.list").map(([version, , digest]) => [version, digest]));
}

/** The newest migration that these contracts know. */
export function newest() {
  return /** @type {{version: number}} */ (migrationFiles().at(-1)).version;
}

/** The newest migration that a process must know to use this database; null: it does not say. @param {Pick<Session, "all" | "one">} session @param {Map<number, string>} done @returns {number | null} */
export function floorOf(session, done) {
  return done.has(LEVELS) ? (session.one("schema_level.get")?.[1] ?? null) : null;
}

/** @param {number} level @param {number} known */
export function tooNew(level, known) {
  return new StoreTooNew(`It is at migration ${level}; this kfm knows up to ${known}.`);
}

/** The floor that a migration sets: 0 for one that others can go on beside. See `kfm.model.upgrades`. @param {number} version @param {string} text */
function floorAfter(version, text) {
  const found = DECLARATION.exec(text);
  if (found?.[1] === "expand" && !found[2]) return 0;
  return found?.[1] === "contract" ? Number(found[2] ?? version) : version;
}

/** Refuse a database that these contracts do not understand. With its floor a newer one may be understood. @param {Map<number, string>} done @param {number | null} [floor] */
export function check(done, floor = null) {
  const known = migrationFiles();
  if (done.has(MOVED)) throw new LedgerMoved(`This ledger has moved to ${done.get(MOVED)}.`);
  if (done.has(ARRIVING))
    throw new LedgerMoved(`This ledger is being filled from ${done.get(ARRIVING)}, and is not in use yet.`, {
      remedy: "The command that fills it (`kfm store copy`, `kfm restore`) goes on where it ended when it is run again.",
    });
  const highest = Math.max(0, ...done.keys());
  if (highest > newest() && (floor === null || floor > newest())) throw tooNew(highest, newest());
  for (const { version, name, text } of known)
    if (done.has(version) && done.get(version) !== sha256Text(text)) throw new StoreCorrupt(`Migration ${version} (${name}) was applied with another text.`);
}

/** Is everything there that these contracts need? @param {Pick<Session, "all" | "one">} session */
export function isUsable(session) {
  const done = applied(session);
  check(done, floorOf(session, done));
  return migrationFiles().every(({ version }) => done.has(version));
}

/**
 * Apply what is missing.
 * @param {{session: Session, write: <T>(change: (session: Session) => T) => T, script(sql: string): void, keepTo?: (level: number) => void}} database @param {number} nowMs
 */
export function migrate(database, nowMs) {
  const done = applied(database.session);
  check(done, floorOf(database.session, done)); // before anything is written
  for (const { version, name, text } of migrationFiles()) {
    if (done.has(version)) continue;
    database.write((session) => {
      session.all("migrations.create");
      const now = applied(session);
      check(now, floorOf(session, now));
      if (now.has(version)) return; // another process was faster
      database.script(inSqlite(text));
      session.all("migrations.insert", { version, name, checksum: sha256Text(text), applied_at_ms: nowMs });
      if (version >= LEVELS || now.has(LEVELS)) session.all("migrations.reach_level", { level: version, floor: floorAfter(version, text) });
    });
  }
  database.keepTo?.(newest());
}
