/** The read-only SQLite ledger, which leaves no trace on the disk: what a dry run opens. See `kfm.db.sqlite`. */

import { copyFileSync, existsSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { pathToFileURL } from "node:url";
import { KfmError, StoreBusy, StoreCorrupt } from "../model/errors.mjs";
import { isUsable, migrate } from "./migrations.mjs";
import { checkSqliteLibrary, Session, translated } from "./sqlite.mjs";

/** @typedef {import("../types.js").Clock} Clock */

const ROUNDS_MAX = 50;
const BUSY_MS = 5_000;

/** A database in memory, with nothing in it yet. */
export class MemoryDatabase {
  /** @param {Clock} clock @param {string} [copyOf] */
  constructor(clock, copyOf) {
    this.connection = new DatabaseSync(copyOf ?? ":memory:");
    this.session = new Session(this.connection, clock, ":memory:");
  }

  /** @template T @param {(session: Session) => T} change */
  write(change) {
    this.connection.exec("BEGIN");
    const result = change(this.session);
    this.connection.exec("COMMIT");
    return result;
  }

  /** @param {string} sql */
  script(sql) {
    this.connection.exec(sql);
  }

  close() {
    this.connection.close();
  }
}

/** @param {string} path Changes whenever the file does; null for no file, or an empty one. */
function stamp(path) {
  try {
    const found = statSync(path, { bigint: true });
    return found.size ? `${found.ino}:${found.size}:${found.mtimeNs}:${found.ctimeNs}` : null;
  } catch {
    return null;
  }
}

export class SqliteReader {
  /** @param {string} path @param {Clock} clock */
  constructor(path, clock) {
    checkSqliteLibrary(process.versions.sqlite ?? "0");
    this.path = path;
    this.clock = clock;
    /** null: SQLite's own locks keep us consistent. @type {string | null} */
    this.seen = null;
    /** @type {Session | null} */
    this.inner = null;
    /** @type {() => void} */
    this.forget = () => {};
    this.one("migrations.exists");
  }

  get session() {
    return this;
  }

  /** @param {string} name @param {Record<string, any>} [parameters] @returns {any[][]} */
  all(name, parameters = {}) {
    for (let round = 0; round < ROUNDS_MAX; round += 1) {
      let found;
      try {
        if (this.inner === null || this.#moved()) this.#reopen();
        found = /** @type {Session} */ (/** @type {unknown} */ (this.inner)).all(name, parameters);
      } catch (error) {
        // Half of an old page and half of a new one look like anything.
        if (error instanceof KfmError && this.#moved()) continue;
        throw error;
      }
      if (!this.#moved()) return found;
    }
    throw new StoreBusy(`${this.path}: it kept changing while it was read.`);
  }

  /** @param {string} name @param {Record<string, any>} [parameters] */
  one(name, parameters = {}) {
    return this.all(name, parameters)[0] ?? null;
  }

  nowMs() {
    return this.clock.nowMs();
  }

  /** @returns {never} */
  write() {
    throw new Error("a reader was asked to write");
  }

  close() {
    this.forget();
    this.forget = () => {};
    this.inner = null;
  }

  #moved() {
    return this.seen !== null && this.seen !== this.#look();
  }

  #look() {
    return `${stamp(this.path)} ${stamp(`${this.path}-wal`)}`;
  }

  #reopen() {
    this.close();
    this.seen = this.#look(); // before it is opened: whatever is written from here on is noticed
    let connection;
    try {
      connection = this.#connect();
    } catch (error) {
      throw translated(error, this.path);
    }
    const session = new Session(connection, this.clock, this.path);
    this.forget = () => connection.close();
    if (isUsable(session)) {
      this.inner = session;
      return;
    }
    connection.close();
    this.forget = () => {};
    const copy = this.#aside();
    migrate(copy, this.clock.nowMs());
    this.forget = () => copy.close();
    this.inner = copy.session;
  }

  #connect() {
    const [file, ahead] = [stamp(this.path), stamp(`${this.path}-wal`)];
    if (file === null && ahead === null) throw new StoreCorrupt(`${this.path}: there is nothing in it.`);
    if (ahead === null) return this.#open("immutable=1");
    if (existsSync(`${this.path}-shm`)) {
      this.seen = null;
      return this.#open("mode=ro");
    }
    return this.#aside().connection;
  }

  /** @param {string} mode */
  #open(mode) {
    const connection = new DatabaseSync(new URL(`${pathToFileURL(resolve(this.path)).href}?${mode}`), { readOnly: true, timeout: BUSY_MS });
    connection.exec("PRAGMA query_only = 1");
    return connection;
  }

  /** A copy elsewhere, whose folder goes as soon as it is open. */
  #aside() {
    const folder = mkdtempSync(join(tmpdir(), "kfm-read-"));
    try {
      const copy = join(folder, "kfm.db");
      copyFileSync(this.path, copy);
      if (existsSync(`${this.path}-wal`)) copyFileSync(`${this.path}-wal`, `${copy}-wal`);
      const database = new MemoryDatabase(this.clock, copy);
      database.connection.prepare("PRAGMA schema_version").get();
      return database;
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }
}
