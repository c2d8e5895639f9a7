/** Named SQL, read from `contracts/sql`: the same statements as Python runs. */

import { contractNames, contractText } from "../model/contracts.mjs";

/** @type {Map<string, string> | null} */
let statements = null;

/** Every statement by name, in SQLite's words. */
export function queries() {
  if (!statements) {
    statements = new Map();
    for (const folder of ["sql/", "sql/sqlite/"])
      for (const name of contractNames(folder, ".sql")) for (const [key, sql] of parsed(contractText(folder + name))) statements.set(key, sql);
  }
  return statements;
}

/** @param {string} text @returns {[string, string][]} */
function parsed(text) {
  const pieces = text.split(/^-- name: (\S+)[ \t]*\n/m).slice(1);
  /** @type {[string, string][]} */
  const found = [];
  for (let at = 0; at + 1 < pieces.length; at += 2) found.push([/** @type {string} */ (pieces[at]), /** @type {string} */ (pieces[at + 1]).trim()]);
  return found;
}

/** @returns {{version: number, name: string, text: string}[]} every migration, in order */
export function migrationFiles() {
  return contractNames("sql/migrations/", ".sql").map((name) => ({ version: Number(name.slice(0, 4)), name: name.slice(5, -4), text: contractText(`sql/migrations/${name}`) }));
}

/** A migration's text in SQLite's words. @param {string} migration */
export function inSqlite(migration) {
  return migration
    .replace(/^@(sqlite|postgresql) (.*)$/gm, (_all, dialect, line) => (dialect === "sqlite" ? line : ""))
    .replaceAll("SERIAL_KEY", "INTEGER PRIMARY KEY")
    .replaceAll(") CLUSTERED;", ") WITHOUT ROWID;");
}
