/** The folder target: one rename shows a whole version, what did not change is linked, no foreign link is followed. */

import assert from "node:assert/strict";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import { sha256Hex } from "../model/canonical.mjs";
import { manifestText, versionOf } from "../model/versions.mjs";
import { LocalObjects } from "../objects/local.mjs";
import { FolderTarget } from "../publish/targets/folder.mjs";
import { versionName } from "../publish/targets/tree.mjs";

const root = fs.mkdtempSync(join(tmpdir(), "kfm-folder-"));
after(() => fs.rmSync(root, { recursive: true, force: true }));
let made = 0;
const ids = { new: () => `id-${made++}` };
const DAY_MS = 86_400_000;

/** @typedef {NonNullable<import("../types.js").Head>} Head */

/** @param {number} sequence @param {Record<string, string>} contents @param {import("../types.js").Form} [form] @returns {Head} */
function headOf(sequence, contents, form = 2) {
  const items = Object.entries(contents).map(([path, text], day) => ({
    id: `s_${day}`,
    source_id: "s",
    window_start_ms: day * DAY_MS,
    window_end_ms: (day + 1) * DAY_MS,
    partition: null,
    assets: [{ path, sha256: sha256Hex(text), size: text.length, media_type: "text/csv", source_uri: null, modified_ms: null, roles: ["data"] }],
    bbox: null,
  }));
  const rights = { license: "CC0-1.0", care: { label: "Public", level: "public" }, sovereignty: null, local_contexts: null, attribution: null };
  const manifest = { dataset_id: "d", title: "D", description: "D", domain: "general", keywords: [], rights, items };
  const version_id = form === 1 ? `sha256:${sha256Hex(manifestText(manifest, 1))}` : versionOf(manifest).versionId;
  return [{ dataset_id: "d", sequence, version_id, run_id: "r", fence: 1, policy_epoch: 1, promoted_at_ms: 0 }, manifest, form];
}

/** A target of its own, with these objects, that was given some versions. @param {string} name @param {string[]} texts */
function targetOf(name, texts) {
  const objects = new LocalObjects(join(root, name, "objects"), ids);
  for (const text of texts) {
    const [staging] = objects.stage();
    staging.write(Buffer.from(text));
    staging.commit();
  }
  const target = new FolderTarget(name, objects, ids, join(root, name, "pub"));
  /** @type {Map<number, string>} */
  const known = new Map();
  const folder = join(root, name, "pub", "d");
  const show = (/** @type {Head} */ head) => {
    known.set(head[0].sequence, head[0].version_id);
    return target.project("d", () => head, (sequence) => known.get(sequence) ?? null);
  };
  return { target, folder, show, inode: (/** @type {string} */ path) => fs.statSync(join(folder, path)).ino, knows: (/** @type {Head} */ head) => known.set(head[0].sequence, head[0].version_id) };
}

/** As Python leaves a large version: its folder of data is a link. @param {string} folder @param {string} name @param {string} [target] */
function share(folder, name, target = "../.shared/00000001-p-1") {
  const [data, shared] = [join(folder, ".versions", name, "data"), join(folder, ".versions", name, target)];
  fs.mkdirSync(join(folder, ".versions/.shared"));
  fs.mkdirSync(dirname(shared), { recursive: true });
  fs.renameSync(data, shared);
  fs.symlinkSync(target, data);
}

test("a version is shown by one link to a hidden folder, and its manifest has its name", () => {
  const { folder, show, target } = targetOf("first", ["one"]);
  const head = headOf(1, { "a/1.csv": "one" });
  assert.equal(show(head), 1);
  assert.equal(fs.readlinkSync(join(folder, "current")), `.versions/${versionName(head[0])}`);
  assert.equal(`sha256:${sha256Hex(fs.readFileSync(join(folder, "current/manifest.json")))}`, head[0].version_id);
  assert.equal(fs.readFileSync(join(folder, "current/data/a/1.csv"), "utf8"), "one");
  assert.ok(fs.existsSync(join(folder, "current/items/s/1970/01/01/s_0.json")));
  assert.deepEqual(fs.readdirSync(folder).sort(), [".tickets", ".versions", "current"]);
  assert.ok(target.isShown("d", head[0]));
});

test("what did not change is linked, also out of a folder that versions share", () => {
  const { folder, show, inode } = targetOf("shared", ["one", "two"]);
  const [first, second] = [headOf(1, { "1.csv": "one" }), headOf(2, { "1.csv": "one", "2.csv": "two" })];
  show(first);
  const before = inode("current/data/1.csv");
  share(folder, versionName(first[0]));
  assert.equal(show(second), 2);
  assert.equal(inode("current/data/1.csv"), before);
  assert.ok(!fs.lstatSync(join(folder, "current/data")).isSymbolicLink());
  assert.equal(fs.readFileSync(join(folder, ".versions/.shared/00000001-p-1/1.csv"), "utf8"), "one");
});

test("what was edited in place is not carried on", () => {
  const { folder, show } = targetOf("edited", ["one", "two"]);
  show(headOf(1, { "1.csv": "one" }));
  fs.writeFileSync(join(folder, "current/data/1.csv"), "eno");
  show(headOf(2, { "1.csv": "one", "2.csv": "two" }));
  assert.equal(fs.readFileSync(join(folder, "current/data/1.csv"), "utf8"), "one");
});

test("a version whose shared folder is gone is made again", () => {
  const { folder, show, target } = targetOf("gone", ["one"]);
  const head = headOf(1, { "1.csv": "one" });
  show(head);
  share(folder, versionName(head[0]));
  assert.ok(target.isShown("d", head[0]));
  fs.rmSync(join(folder, ".versions/.shared"), { recursive: true });
  assert.ok(!target.isShown("d", head[0]));
  assert.equal(show(head), 1);
  assert.equal(fs.readFileSync(join(folder, "current/data/1.csv"), "utf8"), "one");
});

for (const target of ["../../../outside", "../.shared/../../../../outside", "../.shared/a/b", "../.shared/outside"])
  test(`a link to ${target} in a version is not followed`, () => {
    const { folder, show, inode } = targetOf(`foreign-${target.replaceAll("/", "-")}`, ["one", "two"]);
    const first = headOf(1, { "1.csv": "one" });
    show(first);
    share(folder, versionName(first[0]), target);
    const behind = inode("current/data/1.csv");
    assert.equal(show(headOf(2, { "1.csv": "one", "2.csv": "two" })), 2);
    assert.notEqual(inode("current/data/1.csv"), behind);
    assert.equal(fs.readFileSync(join(folder, ".versions", versionName(first[0]), "data/1.csv"), "utf8"), "one");
  });

test("a version in the layout of before is shown until the next one is made", () => {
  const { folder, show, inode, knows } = targetOf("before", ["one", "two"]);
  const first = headOf(1, { "1.csv": "one" }, 1);
  show(first);
  fs.renameSync(join(folder, ".versions"), join(folder, "versions"));
  fs.unlinkSync(join(folder, "current"));
  fs.symlinkSync(`versions/${versionName(first[0])}`, join(folder, "current"));
  knows(first);
  const before = inode("current/data/1.csv");
  assert.equal(show(first), 1);
  assert.ok(!fs.existsSync(join(folder, ".versions")));
  const second = headOf(2, { "1.csv": "one", "2.csv": "two" });
  assert.equal(show(second), 2);
  assert.equal(fs.readlinkSync(join(folder, "current")), `.versions/${versionName(second[0])}`);
  assert.equal(inode("current/data/1.csv"), before);
  assert.ok(fs.existsSync(join(folder, "versions", versionName(first[0]), "manifest.json")));
});

test("a version of before that has to be shown again is shown in its own form", () => {
  const { folder, show, target } = targetOf("form", ["one"]);
  const head = headOf(1, { "1.csv": "one" }, 1);
  show(head);
  assert.equal(JSON.parse(fs.readFileSync(join(folder, "current/manifest.json"), "utf8")).items.length, 1);
  fs.rmSync(join(folder, ".versions"), { recursive: true });
  assert.ok(!target.isShown("d", head[0]));
  assert.equal(show(head), 1);
  assert.ok(target.isShown("d", head[0]));
});

test("nothing is written behind a link in the place of a folder", () => {
  const { folder, show } = targetOf("linked", ["one"]);
  fs.mkdirSync(folder, { recursive: true });
  fs.mkdirSync(join(root, "elsewhere"));
  fs.symlinkSync(join(root, "elsewhere"), join(folder, ".versions"));
  assert.throws(() => show(headOf(1, { "1.csv": "one" })), /\.versions is a link, and is not followed/);
  assert.deepEqual(fs.readdirSync(join(root, "elsewhere")), []);
});

test("a pointer that is not ours is not moved", () => {
  const { folder, show } = targetOf("pointer", ["one"]);
  fs.mkdirSync(folder, { recursive: true });
  fs.symlinkSync("../.versions/00000001-0123456789ab", join(folder, "current"));
  assert.throws(() => show(headOf(1, { "1.csv": "one" })), /move it away/);
});
