/** The publisher's promises, and the validator's. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { signKfm } from "../model/webhook_signatures.mjs";
import { validate } from "../model/webhooks.mjs";
import { ScratchObjects } from "../objects/scratch.mjs";
import { NoopPublisher } from "../publish/publisher.mjs";
import { Trace } from "../publish/publisher_trace.mjs";
import { outputs, summary } from "../publish/targets/github_actions.mjs";

const limits = { objects_per_run_max: 2, object_bytes_max: 10, run_bytes_max: 15 };
const RUN = "00000000-0000-8000-8000-000000000000";

/** @param {any} [more] @returns {[NoopPublisher, string[]]} */
function made(more = {}) {
  /** @type {string[]} */
  const lines = [];
  const trace = new Trace((line) => lines.push(line), () => 0, RUN, { publisher: "noop", dryRun: true, restricted: false });
  return [new NoopPublisher(trace, { limits, leaks: () => false, scratch: new ScratchObjects(), ...more }), lines];
}

test("each operation leaves one line, and nothing is written twice", async () => {
  const [publisher, lines] = made();
  await publisher.writeFile("a.txt", "hello");
  await assert.rejects(publisher.writeFile("a.txt", "again"), /written twice/);
  publisher.emitEvent("done", { share: 0.5 });
  publisher.updateState("cursor", 3);
  publisher.noopGuard();
  publisher.close();
  assert.throws(() => publisher.emitEvent("late", {}), /after the run had ended/);
  assert.deepEqual(lines.map((line) => JSON.parse(line).operation), ["write_file", "write_file", "emit_event", "update_state", "noop_guard", "close"]);
  assert.deepEqual(publisher.staged().assets.map((asset) => asset.path), ["a.txt"]);
});

test("limits hold while bytes arrive", async () => {
  const [publisher] = made();
  await assert.rejects(publisher.writeFile("big", "x".repeat(11)), /object_bytes_max is 10/);
});

test("a dry-run in which something changed is refused", () => {
  let state = 1;
  const [publisher] = made({ observe: () => state });
  state = 2;
  assert.throws(() => publisher.noopGuard(), /changed during a dry-run/);
});

test("a value can't end a job's output early", () => {
  let made_ = 0;
  const text = outputs({ path: "kfm_0\nevil=1" }, { new: () => String(made_++) });
  assert.equal(text, "path<<kfm_1\nkfm_0\nevil=1\nkfm_1\n");
});

test("the summary of a restricted dataset names nothing", () => {
  const manifest = { dataset_id: "d", title: "Secret place", description: "", domain: "g", keywords: [], rights: { license: "CC0-1.0", care: { label: "L", level: "restricted" } }, items: [] };
  const promotion = { dataset_id: "d", sequence: 1, version_id: "sha256:0", run_id: RUN, fence: 1, policy_epoch: 1, promoted_at_ms: 0 };
  assert.ok(!summary(promotion, manifest).includes("Secret"));
});

test("the summary lists files by their paths, whichever item has them", () => {
  const asset = (/** @type {string} */ path) => ({ path, sha256: "ab".repeat(32), size: 1, media_type: "text/csv", source_uri: null, modified_ms: null, roles: ["data"] });
  const item = (/** @type {string} */ id, /** @type {string[]} */ paths) => ({ id, source_id: "s", window_start_ms: 0, window_end_ms: 1, partition: null, assets: paths.map(asset), bbox: null });
  const manifest = { dataset_id: "d", title: "Open", description: "", domain: "g", keywords: [], rights: { license: "CC0-1.0", care: { label: "L", level: "public" } }, items: [item("a", ["c", "a"]), item("b", ["b"])] };
  const promotion = { dataset_id: "d", sequence: 1, version_id: "sha256:0", run_id: RUN, fence: 1, policy_epoch: 1, promoted_at_ms: 0 };
  assert.deepEqual(summary(promotion, manifest).match(/^\| [a-c] /gm), ["| a ", "| b ", "| c "]);
});

test("a webhook is taken only if it is signed, whole and fresh", () => {
  const body = Buffer.from(JSON.stringify({ source_id: "s", trigger: "webhook", event_type: "e", sent_at: "2026-01-01T00:00:00Z" }));
  const [now, secret] = [Date.UTC(2026, 0, 1), "0123456789abcdef"];
  const signed = { "X-KFM-Signature": signKfm(Buffer.from(secret), body) };
  assert.equal(validate(signed, body, ["other", secret], now).secret_index, 1);
  assert.deepEqual(validate(signed, Buffer.concat([body, Buffer.from(" ")]), [secret], now).status, 403);
  assert.equal(validate({}, body, [secret], now).reason, "missing");
  assert.equal(validate(signed, body, [secret], now + 600_000).reason, "stale");
});
