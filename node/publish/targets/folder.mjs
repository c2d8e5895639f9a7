/**
 * The folder target: the published tree on a local disk.
 *
 *     <dataset>/current -> .versions/00000012-0123456789ab
 *     <dataset>/.versions/00000012-0123456789ab/…
 *     <dataset>/.tickets/<id>/
 *
 * Large versions of Python's kfm share folders, which lie in `.versions/.shared`; here each version has folders of its
 * own. Versions of before are in `versions`, and are shown from there until the next one is made.
 *
 * There is no lock, so no dead or stalled writer can hold one, in whichever language it was written. A projector makes a
 * ticket before it reads the head, and removes all other tickets before it moves the pointer out of its own.
 */

import { StoreCorrupt, TargetUnavailable, KfmError, isCode, isSystemError, strerror } from "../../model/errors.mjs";
import { partition, withoutPrefix } from "../../model/wording.mjs";
import * as files from "../../objects/files.mjs";
import { Earlier, VersionBuilder, fileSha256, isKnown, requireFolderName, sequenceOf, versionName } from "./tree.mjs";

/** @typedef {import("../../types.js").Promotion} Promotion */
/** @typedef {() => import("../../types.js").Head} HeadReader */
/** @typedef {(sequence: number) => string | null} History */

/** @typedef {{place: string, name: string}} Shown the version that `current` shows, and the folder that it is in */

const VERSIONS = ".versions";
const PLACES = [VERSIONS, "versions"]; // the second: of before
const ATTEMPTS_MAX = 50;
const TICKET_KILL_TRIES_MAX = 10;

/** Another writer removed our ticket: begin again, and read the head again. */
class Fenced extends Error {}

export class FolderTarget {
  /** @param {string} name @param {any} objects @param {import("../../types.js").Ids} ids @param {string} path @param {import("./tree.mjs").Linking} [linking] @param {() => void} [tick] */
  constructor(name, objects, ids, path, linking = "versions", tick = () => {}) {
    this.name = name;
    this.objects = objects;
    this.ids = ids;
    this.path = path.replace(/\/+$/, "") || "/";
    this.linking = linking;
    this.tick = tick;
  }

  /** Make `current` show the head; the sequence that it shows. @param {string} datasetId @param {HeadReader} head @param {History} known @returns {number | null} */
  project(datasetId, head, known) {
    const folder = this.#folder(datasetId);
    try {
      this.#requireNoLinks([folder, ...PLACES.map((place) => `${folder}/${place}`), `${folder}/.tickets`]);
      const shown = this.#shownAlready(folder, head);
      if (shown !== null) return shown || null;
      for (let round = 0; round < ATTEMPTS_MAX; round += 1) {
        try {
          return this.#attempt(folder, head, known);
        } catch (error) {
          if (!(error instanceof Fenced)) throw error;
        }
      }
    } catch (error) {
      if (isSystemError(error)) throw new TargetUnavailable(`${this.name}: ${strerror(error)} (${error.path ?? folder}).`);
      throw error;
    }
    throw new TargetUnavailable(`${this.name}: fenced ${ATTEMPTS_MAX} times by others at work on ${folder}.`);
  }

  /** A link in place of a folder is an error, never a way to somewhere else. @param {string[]} paths */
  #requireNoLinks(paths) {
    const link = paths.find(files.isLink);
    if (link) throw new TargetUnavailable(`${this.name}: ${link.slice(link.lastIndexOf("/") + 1)} is a link, and is not followed (${link}).`);
  }

  /** @param {string} datasetId */
  #folder(datasetId) {
    return `${this.path}/${requireFolderName(datasetId)}`;
  }

  /** The common case: nothing to do, so nothing is written. 0: nothing was ever promoted. @param {string} folder @param {HeadReader} head */
  #shownAlready(folder, head) {
    const found = head();
    if (!found) return 0;
    if (!this.#isShown(folder, found[0])) return null;
    files.fsyncDir(folder); // the process that moved the pointer may have died before this
    files.unlessGone(() => this.#killOthers(folder, ""));
    return found[0].sequence;
  }

  /** @param {string} folder @param {HeadReader} head @param {History} known */
  #attempt(folder, head, known) {
    files.makeDirs(`${folder}/${VERSIONS}`);
    files.makeDirs(`${folder}/.tickets`);
    const mine = this.ids.new();
    const [ticket, building] = [`${folder}/.tickets/${mine}`, `${folder}/${VERSIONS}/.building-${mine}`];
    files.mkdir(ticket);
    try {
      const found = head(); // only now: whatever is promoted from here on removes our ticket
      return found ? this.#show(folder, ticket, building, found, head, known) : null;
    } finally {
      this.#dropTicket(ticket);
      if (files.exists(building)) files.removeTree(building);
    }
  }

  /** @param {string} folder @param {string} ticket @param {string} building @param {NonNullable<import("../../types.js").Head>} found @param {HeadReader} head @param {History} known */
  #show(folder, ticket, building, found, head, known) {
    const [promotion] = found;
    let shown = this.#shown(folder);
    if (shown !== null && !isKnown(shown.name, known)) throw this.#foreign(shown.name, promotion.sequence);
    if (shown?.name === versionName(promotion) && !this.#isShown(folder, promotion)) shown = null; // it is gone, or was altered
    const sequence = shown && sequenceOf(shown.name);
    if (shown !== null && sequence !== null && sequence >= promotion.sequence) {
      this.#requireSameHistory(shown.name, head);
      files.fsyncDir(folder);
      return sequence;
    }
    try {
      this.#build(folder, building, found, shown);
      this.#killOthers(folder, ticket);
      files.symlink(`${VERSIONS}/${versionName(promotion)}`, `${ticket}/current`);
      files.rename(`${ticket}/current`, `${folder}/current`);
    } catch (error) {
      if (isCode(error, "ENOENT")) throw new Fenced();
      if (error instanceof StoreCorrupt && head()?.[0].sequence !== promotion.sequence) throw new Fenced(); // its objects were collected
      throw error;
    }
    files.fsyncDir(folder);
    return promotion.sequence;
  }

  /** @param {string} folder @param {string} building @param {NonNullable<import("../../types.js").Head>} found @param {Shown | null} shown */
  #build(folder, building, [promotion, manifest, form], shown) {
    if (!this.#holds(folder, VERSIONS, promotion)) {
      const earlier = shown && new Earlier(`${folder}/${shown.place}`, shown.name);
      new VersionBuilder(this.objects, building, earlier, this.linking, this.tick).build(manifest, form);
      this.#settle(folder, building, promotion);
    }
    files.fsyncDir(`${folder}/${VERSIONS}`); // also when another process made it
  }

  /** Give a version its name, unless another writer was quicker: versions are immutable. @param {string} folder @param {string} building @param {Promotion} promotion */
  #settle(folder, building, promotion) {
    const final = `${folder}/${VERSIONS}/${versionName(promotion)}`;
    for (const isLast of [false, true]) {
      try {
        files.rename(building, final);
        return;
      } catch (error) {
        if (this.#holds(folder, VERSIONS, promotion)) return;
        if (!files.exists(building)) throw new Fenced();
        if (isLast) throw error;
      }
      this.#trash(folder, versionName(promotion)); // what stands there is not that version any more
    }
  }

  /** @param {string} folder @param {string} mine */
  #killOthers(folder, mine) {
    for (const name of files.list(`${folder}/.tickets`)) {
      if (`${folder}/.tickets/${name}` === mine) continue;
      this.#dropTicket(`${folder}/.tickets/${name}`);
      this.#trash(folder, `.building-${name}`);
    }
  }

  /** Renamed before it is emptied: a version is whole or gone. @param {string} folder @param {string} name */
  #trash(folder, name) {
    const trash = `${folder}/${VERSIONS}/.trash-${this.ids.new()}`;
    if (!files.unlessGone(() => files.rename(`${folder}/${VERSIONS}/${name}`, trash))) return;
    try {
      files.removeTree(trash);
    } catch (error) {
      if (!isSystemError(error)) throw error; // its owner may still be writing; what is left goes another time
    }
  }

  /** Remove a ticket for good. Its owner puts one link into it at most once, so this ends. @param {string} ticket */
  #dropTicket(ticket) {
    for (let round = 0; round < TICKET_KILL_TRIES_MAX; round += 1) {
      files.unlessGone(() => files.unlink(`${ticket}/current`));
      try {
        files.rmdir(ticket);
        return;
      } catch (error) {
        if (isCode(error, "ENOENT")) return;
        if (!isCode(error, "ENOTEMPTY", "EEXIST")) throw error;
      }
    }
    throw new TargetUnavailable(`${this.name}: ${ticket} can't be removed.`);
  }

  /** Does `current` show this version? @param {string} datasetId @param {Promotion} promotion */
  isShown(datasetId, promotion) {
    return this.#isShown(this.#folder(datasetId), promotion);
  }

  /** @param {string} folder @param {Promotion} promotion */
  #isShown(folder, promotion) {
    const shown = this.#shown(folder);
    return shown?.name === versionName(promotion) && this.#holds(folder, shown.place, promotion);
  }

  /** Is the version in this folder? Its manifest is looked at, and shared folders at its top, not each of its files. @param {string} folder @param {string} place @param {Promotion} promotion */
  #holds(folder, place, promotion) {
    const [versions, name] = [`${folder}/${place}`, versionName(promotion)];
    return fileSha256(`${versions}/${name}/manifest.json`) === withoutPrefix(promotion.version_id, "sha256:") && new Earlier(versions, name).isWhole();
  }

  /** The version that `current` shows. @param {string} folder @returns {Shown | null} */
  #shown(folder) {
    let target;
    try {
      target = files.readlink(`${folder}/current`);
    } catch (error) {
      if (isCode(error, "ENOENT", "ENOTDIR")) return null;
      throw new TargetUnavailable(`${this.name}: ${folder}/current is not ours; move it away.`);
    }
    const [place, , name] = partition(target, "/");
    if (!PLACES.includes(place) || sequenceOf(name) === null) throw new TargetUnavailable(`${this.name}: ${folder}/current points to ${target}; move it away.`);
    return { place, name };
  }

  /** A target that is ahead of its database belongs to another one, or to a lost past. @param {string} shown @param {HeadReader} head */
  #requireSameHistory(shown, head) {
    const found = head(); // again: a newer one may have been promoted and shown meanwhile
    const known = found?.[0].sequence ?? 0;
    const same = found && (known > /** @type {number} */ (sequenceOf(shown)) || versionName(found[0]) === shown);
    if (!same) throw this.#foreign(shown, known);
  }

  /** @param {string} shown @param {number} at @returns {KfmError} */
  #foreign(shown, at) {
    return new TargetUnavailable(`${this.name}: it shows ${shown}, which is not of this database; the database is at ${at}.`, {
      remedy: "The target belongs to another state folder, or the state was lost or restored: give it another path, or remove its `current` and project again.",
    });
  }
}
