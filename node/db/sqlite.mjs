/** SQLite through node:sqlite: WAL, synchronous=FULL, one writer at a time through the write lock; libraries and disks that lose commits are refused. */

import { closeSync, constants, existsSync, fsyncSync, openSync, readFileSync, realpathSync, statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { BackendUnavailable, KfmError, LedgerMoved, SchemaViolation, StoreBusy, StoreCorrupt, StoreUnsafe } from "../model/errors.mjs";
import { tooNew } from "./migrations.mjs";
import { queries } from "./queries.mjs";
import { WAIT_MAX_MS, WriteLock, isBusy, retryWhileBusy } from "./write_lock.mjs";

// --- what is refused ---------------------------------------------------------------------

const NETWORK_FILE_SYSTEMS = new Set(
  ("nfs nfs4 cifs smb3 smbfs afs 9p ceph glusterfs lustre beegfs fuse.sshfs fuse.s3fs fuse.gcsfuse fuse.glusterfs " +
    "fuse.rclone fuse.blobfuse").split(" "),
);

/** Refuse libraries with the WAL-reset bug: two processes that write and checkpoint lose commits. @param {string} version */
export function checkSqliteLibrary(version) {
  const [major = 0, minor = 0, patch = 0] = version.split(".").map(Number);
  const number = (major * 1000 + minor) * 1000 + patch;
  const patched = (number >= 3_044_006 && number < 3_045_000) || (number >= 3_050_007 && number < 3_051_000);
  if (number < 3_051_003 && !patched)
    throw new StoreUnsafe(`SQLite ${version} can lose commits when two processes write (fixed in 3.51.3).`, {
      remedy: "Use a newer Node.js: `make node` brings one that carries a sound SQLite.",
    });
}

/** SQLite's locks and shared memory do not work over a network. @param {string} folder */
export function checkLocalDisk(folder) {
  const kind = fileSystemType(folder);
  if (kind && NETWORK_FILE_SYSTEMS.has(kind))
    throw new StoreUnsafe(`${folder} lies on a network file system (${kind}).`, {
      remedy: "Set `state` to a folder on a local disk, or `store` to a postgresql:// address.",
    });
}

/** @param {string} path @returns {string | null} */
function fileSystemType(path) {
  let table;
  try {
    table = readFileSync("/proc/self/mountinfo", "utf8").split("\n").filter(Boolean);
  } catch {
    return null;
  }
  const real = realpathSync(path);
  let best = "";
  let kind = null;
  for (const line of table) {
    const fields = line.split(/\s+/);
    const point = (fields[4] ?? "").replace(/\\([0-7]{3})/g, (_all, digits) => String.fromCharCode(Number.parseInt(digits, 8)));
    const inside = real === point || real.startsWith(`${point.replace(/\/+$/, "")}/`);
    if (inside && point.length >= best.length) {
      best = point;
      kind = fields[fields.indexOf("-") + 1] ?? null;
    }
  }
  return kind;
}

// --- the database ------------------------------------------------------------------------

/** @typedef {any[]} Row */
/** @typedef {import("../types.js").Clock} Clock */

const CHECKPOINT_PAGES = 4_000; // 16 MB
const CHECKPOINT_WAIT_MS = 200;
const APPLICATION_ID = 0x4b464d31; // "KFM1"
const FULL = 2;
const FENCED = "kfm-moved:"; // how the triggers of a ledger that moves begin what they say

/** Named statements on one connection. */
export class Session {
  /** @param {DatabaseSync} connection @param {Clock} clock @param {string} path */
  constructor(connection, clock, path) {
    this.connection = connection;
    this.clock = clock;
    this.path = path;
    /** @type {Map<string, import("node:sqlite").StatementSync>} */
    this.prepared = new Map();
    this.inTransaction = false;
  }

  /** @param {string} name @param {Record<string, any>} [parameters] @returns {Row[]} */
  all(name, parameters = {}) {
    const work = () => this.#run(name, parameters);
    try {
      if (this.inTransaction) return work();
      return retryWhileBusy(work, performance.now() + WAIT_MAX_MS, () => new StoreBusy(`${this.path}: another process holds it.`));
    } catch (error) {
      throw translated(error, this.path);
    }
  }

  /** @param {string} name @param {Record<string, any>} parameters @returns {Row[]} */
  #run(name, parameters) {
    let statement = this.prepared.get(name);
    if (!statement) {
      const sql = queries().get(name);
      if (sql === undefined) throw new Error(`there is no statement ${name}`);
      statement = this.connection.prepare(sql);
      statement.setReturnArrays(true);
      statement.setAllowUnknownNamedParameters(true);
      this.prepared.set(name, statement);
    }
    /** @type {Record<string, any>} */
    const bound = {};
    for (const key in parameters) bound[key] = parameters[key] ?? null;
    return /** @type {any} */ (statement.all(bound));
  }

  /** @param {string} name @param {Record<string, any>} [parameters] @returns {Row | null} */
  one(name, parameters = {}) {
    return this.all(name, parameters)[0] ?? null;
  }

  nowMs() {
    return this.clock.nowMs();
  }
}

/** An empty file for the owner alone. SQLite gives its other files the mode of this one. @param {string} path */
function makePrivate(path) {
  try {
    closeSync(openSync(path, "wx", 0o600));
  } catch {
    // It is there, or SQLite will say what is wrong.
  }
}

export class SqliteDatabase {
  /** @param {string} path @param {Clock} clock */
  constructor(path, clock) {
    checkSqliteLibrary(process.versions.sqlite ?? "0");
    const folder = dirname(resolve(path));
    checkLocalDisk(folder);
    this.path = path;
    this.place = resolve(path);
    this.checkpointAt = CHECKPOINT_PAGES;
    const isNew = !existsSync(path);
    try {
      for (const file of [path, `${path}-gate`]) makePrivate(file);
      this.writeLock = new WriteLock(path);
      this.connection = new DatabaseSync(path, { timeout: 0, enableForeignKeyConstraints: true });
      this.writeLock.acquire(() => this.#prepare());
    } catch (error) {
      throw translated(error, path);
    }
    // SQLite syncs the folder that holds its files, not the entry of that folder in its parent.
    if (isNew) syncFolder(dirname(folder));
    this.session = new Session(this.connection, clock, path);
    this.identity = identity(this.place);
    /** The newest migration that this process knows, once it is known that the ledger says who may write. @type {number | null} */
    this.level = null;
  }

  /** From now on a transaction lands only if a kfm that knows the migrations up to `level` may write. @param {number} level */
  keepTo(level) {
    this.level = level;
  }

  /** Inside the transaction: a migration can't come between. @param {number} known */
  #requireLevel(known) {
    const [level, floor] = this.session.one("schema_level.get") ?? [0, 0];
    if (floor > known) throw tooNew(level, known);
  }

  #prepare() {
    const pragma = (/** @type {string} */ text) => Object.values(/** @type {any} */ (this.#whileBusy(() => this.connection.prepare(`PRAGMA ${text}`).get())) ?? {})[0];
    const mark = pragma("application_id");
    if (mark !== APPLICATION_ID && (mark !== 0 || pragma("schema_version") !== 0))
      throw new StoreUnsafe(`${this.path} belongs to another program.`, { remedy: "Name another file or folder for the state." });
    if (pragma("journal_mode") !== "wal") pragma("journal_mode = wal");
    pragma("synchronous = FULL");
    pragma("fullfsync = 1"); // macOS, in commits and in checkpoints; elsewhere it changes nothing
    pragma("wal_autocheckpoint = 0"); // checkpoints happen inside the write lock only
    this.pageBytes = Number(pragma("page_size"));
    const [mode, sync] = [pragma("journal_mode"), pragma("synchronous")];
    if (mode !== "wal" || sync !== FULL) throw new StoreUnsafe(`${this.path}: journal mode ${mode}, synchronous ${sync}; WAL and FULL are needed.`);
    if (mark !== APPLICATION_ID) pragma(`application_id = ${APPLICATION_ID}`);
  }

  /** @template T @param {() => T} work @param {number} [waitMs] */
  #whileBusy(work, waitMs = WAIT_MAX_MS) {
    const writeLock = /** @type {WriteLock} */ (this.writeLock);
    return retryWhileBusy(work, performance.now() + waitMs, () => writeLock.tooLate());
  }

  /** Run `change` in one durable transaction. @template T @param {(session: Session) => T} change @returns {T} */
  write(change) {
    if (identity(this.place) !== this.identity)
      throw new BackendUnavailable(`${this.path} was removed or replaced while it was in use.`, { remedy: "Put it back, or end all processes that use it and start them again." });
    const { connection, session } = this;
    let result;
    try {
      this.writeLock.acquire(() => this.#whileBusy(() => connection.exec("BEGIN IMMEDIATE")));
      session.inTransaction = true;
      try {
        if (this.level !== null) this.#requireLevel(this.level);
        result = change(session);
        connection.exec("COMMIT");
      } catch (error) {
        if (connection.isTransaction) connection.exec("ROLLBACK");
        throw error;
      } finally {
        session.inTransaction = false;
      }
    } catch (error) {
      throw isBusy(error) ? this.writeLock.tooLate() : translated(error, this.path);
    }
    if (this.#walPages() >= this.checkpointAt) this.#checkpoint();
    return result;
  }

  #walPages() {
    try {
      return Math.floor(statSync(`${this.path}-wal`).size / (/** @type {number} */ (this.pageBytes) + 24));
    } catch {
      return 0;
    }
  }

  /** Copy the write-ahead file into the database while no process adds to it. The commit is durable whatever happens here. */
  #checkpoint() {
    this.checkpointAt = this.#walPages() + CHECKPOINT_PAGES;
    try {
      this.writeLock.acquire(() => {
        const row = /** @type {any} */ (this.#whileBusy(() => this.connection.prepare("PRAGMA wal_checkpoint(FULL)").get(), CHECKPOINT_WAIT_MS));
        if (!row.busy) this.checkpointAt = CHECKPOINT_PAGES;
      });
    } catch (error) {
      if (!(error instanceof KfmError) && !/** @type {any} */ (error)?.errcode) throw error;
    }
  }

  /** A migration's statements; only inside `write`. @param {string} sql */
  script(sql) {
    this.connection.exec(sql);
  }

  close() {
    this.session.prepared.clear();
    this.connection.close();
    this.writeLock.close();
  }
}

/** @param {string} path */
function identity(path) {
  try {
    const found = statSync(path);
    return `${found.dev}:${found.ino}`;
  } catch {
    return null;
  }
}

/** @param {string} path */
function syncFolder(path) {
  try {
    const descriptor = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY);
    try {
      fsyncSync(descriptor);
    } finally {
      closeSync(descriptor);
    }
  } catch {
    // another user's folder: then it has long been there
  }
}

/** SQLite's errors in our words. @param {unknown} error @param {string} path @returns {unknown} */
export function translated(error, path) {
  const found = /** @type {any} */ (error);
  if (error instanceof KfmError) return error;
  if (found?.code === "ERR_INVALID_ARG_VALUE" || found?.code === "ERR_INVALID_ARG_TYPE" || found?.code === "ERR_OUT_OF_RANGE")
    return SchemaViolation.because(`${path}: ${found.message}.`, {}, error);
  if (found?.code !== "ERR_SQLITE_ERROR") return error;
  const message = found.message;
  const kind = found.errcode & 0xff;
  if (message.includes(FENCED)) return LedgerMoved.because(message.slice(message.indexOf(FENCED) + FENCED.length).trim(), {}, error);
  if ([5, 6].includes(kind)) return StoreBusy.because(`${path}: another process holds it.`, {}, error);
  if (kind === 13) return BackendUnavailable.because(`${path}: the disk is full.`, { remedy: "Free some space and run again." }, error);
  if ([11, 26].includes(kind)) return StoreCorrupt.because(`${path}: ${message}.`, {}, error);
  if ([3, 8, 14].includes(kind))
    return BackendUnavailable.because(`${path}: ${message}.`, { remedy: "Let this user read and write the state folder and what is in it." }, error);
  if ([18, 19, 20].includes(kind)) return SchemaViolation.because(`${path}: ${message}.`, {}, error);
  return BackendUnavailable.because(`${path}: ${message}.`, {}, error);
}
