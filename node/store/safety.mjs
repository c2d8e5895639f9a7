/** Refusals: what kfm will not keep records on. */

import { readFileSync, realpathSync } from "node:fs";
import { StoreUnsafe } from "../core/errors.mjs";

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
