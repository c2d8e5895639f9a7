/** The layout: paths that documents name lead to the code, and imports go downwards only. */

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Ledger } from "../db/ledger.mjs";
import { LedgerReader } from "../db/ledger_reader.mjs";
import { keyOf, triggerKey, workKey } from "../model/keys.mjs";
import { validate } from "../model/webhooks.mjs";
import { NoopPublisher, Publisher } from "../publish/publisher.mjs";
import { GithubActions } from "../publish/targets/github_actions.mjs";

/** @type {Record<string, Record<string, unknown>>} */
const DOCUMENTED = {
  "idempotency/keygen.mjs": { keyOf, triggerKey, workKey },
  "idempotency/ledger.mjs": { Ledger, LedgerReader },
  "publisher/base.mjs": { Publisher },
  "publisher/noop.mjs": { NoopPublisher },
  "publisher/github_actions.mjs": { GithubActions },
  "scheduler/webhook_validator.mjs": { validate },
};

for (const [path, names] of Object.entries(DOCUMENTED))
  test(`${path} is importable under its documented path`, async () => {
    const found = await import(`kfm-twin/${path}`);
    for (const [name, value] of Object.entries(names)) assert.equal(found[name], value, name);
  });

const ROOT = fileURLToPath(new URL("..", import.meta.url));

/** What the modules of a folder may import beside their own; as in the Python package. @type {Record<string, string[]>} */
const LAYERS = {
  model: [],
  system: ["model"],
  config: ["model"],
  db: ["model"],
  policy: ["model"],
  lineage: ["model"],
  calls: ["model"],
  objects: ["model"],
  sources: ["model", "system", "calls", "objects"],
  publish: ["model", "config", "objects"],
  runs: ["model", "config", "calls", "objects", "publish"],
  app: ["model", "system", "config", "db", "policy", "lineage", "calls", "objects", "sources", "publish", "runs"],
  cli: ["model", "config", "runs", "app"],
  runner: ["cli"],
  // The documented paths.
  idempotency: ["model", "db"],
  publisher: ["publish"],
  scheduler: ["model"],
};

/** @param {string} path */
const layerOf = (path) => path.split("/")[0]?.replace(/\.mjs$/, "") ?? "";

test("imports go downwards only", () => {
  const paths = readdirSync(ROOT, { recursive: true, encoding: "utf8" }).filter((path) => path.endsWith(".mjs") && !/^(node_modules|test|testing)\//.test(path));
  for (const path of paths) {
    const allowed = LAYERS[layerOf(path)];
    assert.ok(allowed, `${path} is in no layer`);
    const code = readFileSync(join(ROOT, path), "utf8").replace(/\/\*[\s\S]*?\*\//g, ""); // types may come from anywhere
    for (const [, found = ""] of code.matchAll(/(?:from |import\()"(\.[^"]+)"/g)) {
      const layer = layerOf(normalize(join(dirname(path), found)));
      assert.ok(layer === layerOf(path) || allowed.includes(layer), `${path} imports ${layer}`);
    }
  }
});
