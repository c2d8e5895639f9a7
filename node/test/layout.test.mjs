/** The module paths that documents name, and the code that they lead to. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Ledger, LedgerReader } from "../db/ledger.mjs";
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
