/** The ledger's promises: keys admitted once, locks exclude each other, fences grow, the stale lose. */

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { Ledger } from "../db/ledger.mjs";
import { migrate } from "../db/migrations.mjs";
import { SqliteDatabase } from "../db/sqlite.mjs";
import { SqliteReader } from "../db/sqlite_readonly.mjs";
import { putVersion } from "../db/versions.mjs";
import { circumstances } from "../model/attempts.mjs";
import { canonicalText } from "../model/canonical.mjs";
import { IncidentRenderer } from "../model/incidents.mjs";
import { isSame } from "../model/versions.mjs";
import { describe, newRun } from "../runs/subject.mjs";

const folder = mkdtempSync(join(tmpdir(), "kfm-ledger-"));
after(() => rmSync(folder, { recursive: true, force: true }));
const clock = { now: 1_000_000, nowMs: () => clock.now, monotonicMs: () => clock.now, sleepMs() {} };
const renderer = new IncidentRenderer({ environment: "t", masked: () => false, mask: (name) => name, hide: (text) => text });
const noneDead = () => false;

/** @param {string} name */
function open(name) {
  const database = new SqliteDatabase(join(folder, name), clock);
  migrate(database, clock.nowMs());
  return new Ledger(database, null, renderer);
}

const subject = describe(
  { id: "s", partition: null },
  { id: "d", lock: "dataset", domain: "general" },
  { start_ms: 0, end_ms: 86_400_000, spec: "P1D" },
  "v1",
  { type: "manual", source_id: "s", dataset_id: "d", actor: "a", claimed_actor: null, rationale: null, ticket: null },
  "t",
);

/** @param {Ledger} ledger @param {any} [more] */
function admit(ledger, more = {}) {
  const run = newRun(subject, 0, clock.nowMs());
  const invocation = {
    invocation_id: more.worker_id ?? "w1", run_id: run.run_id, source_id: "s", dataset_id: "d", trigger_type: "manual", idempotency_key: run.idempotency_key,
    outcome: null, actor: "a", requested_at_ms: clock.now, claimed_actor: null, rationale: null, ticket: null, reason: "", gates: [],
  };
  return ledger.admit({ run, seen: null, scope: "dataset:d", worker_id: "w1", lease_ms: 60_000, invocation, policy_epoch: 1, entries: [], known: circumstances(), grant: null, approval: null, ...more }, noneDead);
}

test("a key is admitted once, however often it is asked for", () => {
  const [one, other] = [open("once.db"), open("once.db")];
  assert.equal(admit(one).answer, "admitted");
  assert.equal(admit(other, { worker_id: "w2" }).answer, "locked");
  clock.now += 120_000; // the lease has lapsed
  const again = admit(other, { worker_id: "w2" });
  assert.equal(again.answer, "moved", "the row is there: the decision has to be made anew");
  one.close();
  other.close();
});

test("a lapsed run is taken over with a higher fence, and the stale holder's promotion is lost", () => {
  const ledger = open("fence.db");
  const first = admit(ledger).run;
  assert.ok(first);
  clock.now += 120_000;
  assert.deepEqual(ledger.reap(noneDead).map((one) => one.lapsed), [true]);
  const seen = ledger.run(first.run_id);
  assert.equal(seen?.status, "failed");
  const second = admit(ledger, { seen, run: { ...seen, status: "running", attempts: 2 }, worker_id: "w2" }).run;
  assert.ok(second && second.fence > first.fence);
  const stale = { run_id: first.run_id, dataset_id: "d", scope: "dataset:d", fence: first.fence, policy_epoch: 1, base_sequence: 0, fingerprint: "f", version_id: "v", manifest: null, invocation_id: "w1", reason: "", gates: [], entries: [], states: [], events: [], closes: [], retries: [] };
  assert.equal(ledger.promote(stale).answer, "lost");
  assert.equal(ledger.promote({ ...stale, fence: second.fence, invocation_id: "w2" }).answer, "unchanged");
  assert.equal(ledger.run(first.run_id)?.status, "success");
  ledger.close();
});

test("every admission has a higher fence than any before it", () => {
  const ledger = open("rising.db");
  const first = admit(ledger).run;
  assert.ok(first);
  const request = { run_id: first.run_id, dataset_id: "d", scope: "dataset:d", policy_epoch: 1, base_sequence: 0, fingerprint: "f", version_id: "v", manifest: null, invocation_id: "w1", reason: "", gates: [], entries: [], states: [], events: [], closes: [], retries: [] };
  assert.equal(ledger.promote({ ...request, fence: first.fence }).answer, "unchanged");
  const second = admit(ledger, { run: newRun(subject, 1, clock.nowMs()), worker_id: "w3" }).run;
  assert.ok(second && second.fence > first.fence);
  ledger.close();
});

test("a policy epoch that moved is noticed inside the transaction", () => {
  const ledger = open("epoch.db");
  assert.equal(admit(ledger, { policy_epoch: 7 }).answer, "epoch-moved");
  ledger.close();
});

test("a reader leaves no trace beside the database", async () => {
  const { readdirSync } = await import("node:fs");
  open("quiet.db").close();
  const before = readdirSync(folder).filter((name) => name.startsWith("quiet"));
  const reader = new SqliteReader(join(folder, "quiet.db"), clock);
  assert.deepEqual(reader.one("policy.epoch"), [1]);
  reader.close();
  assert.deepEqual(readdirSync(folder).filter((name) => name.startsWith("quiet")), before);
});

test("a database of another text of a migration is refused", () => {
  const ledger = open("edited.db");
  ledger.database.connection.exec("UPDATE migrations SET checksum = 'sha256:00' WHERE version = 1");
  ledger.close();
  assert.throws(() => open("edited.db"), /applied with another text/);
});

test("a ledger that was expanded is written on; one that was contracted is not", () => {
  const ledger = open("level.db");
  const note = () => ledger.database.write((/** @type {any} */ session) => session.all("policy.advance"));
  ledger.session.all("migrations.insert", { version: 900, name: "later", checksum: "sha256:00", applied_at_ms: 0 });
  ledger.session.all("migrations.reach_level", { level: 900, floor: 0 });
  note();
  open("level.db").close();
  const before = ledger.session.one("policy.epoch");
  ledger.session.all("migrations.reach_level", { level: 900, floor: 900 });
  assert.throws(note, /at migration 900; this kfm knows up to/);
  assert.throws(() => open("level.db"), /at migration 900; this kfm knows up to/);
  assert.deepEqual(ledger.session.one("policy.epoch"), before);
  ledger.close();
});

test("versions are read in the form in which they were named, and only what is new is stored", () => {
  const ledger = open("versions.db");
  const rights = { license: "CC0-1.0", care: { label: "Public", level: "public" }, sovereignty: null, local_contexts: null, attribution: null };
  const item = (/** @type {number} */ at) => ({ id: `s_${1000 + at}`, source_id: "s", window_start_ms: at, window_end_ms: at + 1, partition: null, assets: [{ path: `${at}.csv`, sha256: "ab".repeat(32), size: at, media_type: "text/csv", source_uri: null, modified_ms: null, roles: ["data"] }], bbox: null });
  const of = (/** @type {number} */ count) => ({ dataset_id: "d", title: "D", description: "D", domain: "general", keywords: [], rights, items: Array.from({ length: count }, (_, at) => item(at)) });
  const whole = of(200);
  const { session } = ledger;
  const promote = (/** @type {number} */ sequence, /** @type {string} */ version_id) =>
    session.all("promotions.insert", { dataset_id: "d", sequence, version_id, run_id: `r${sequence}`, fence: 1, policy_epoch: 1, promoted_at_ms: 0 });
  const put = (/** @type {string} */ version_id, /** @type {any} */ staged) => ledger.database.write((/** @type {any} */ inside) => putVersion(inside, version_id, "d", staged));
  // As it was kept before there were trees; as one of those is kept since; and as versions are named now.
  session.all("versions.insert", { version_id: "whole", dataset_id: "d", manifest: canonicalText(whole), tree_id: null, files_id: null });
  const staged = ledger.versions.stage("d", whole);
  put("form-1", { ...staged, root: canonicalText({ ...whole, items: [] }) });
  put("form-2", staged);
  for (const [sequence, [version_id, form]] of /** @type {[string, number][]} */ ([["whole", 1], ["form-1", 1], ["form-2", 2]]).entries()) {
    promote(sequence + 1, version_id);
    const head = ledger.head("d");
    assert.deepEqual([head?.[0].version_id, head?.[2]], [version_id, form]);
    assert.ok(head && isSame(head[1], whole));
  }
  const next = ledger.versions.stage("d", of(201));
  assert.equal(next.items.length, 1);
  assert.ok(next.pages.length < 10, `${next.pages.length} pages`);
  put("next", next);
  promote(4, "next");
  const last = ledger.head("d");
  assert.ok(last && isSame(last[1], of(201)));
  ledger.close();
});
