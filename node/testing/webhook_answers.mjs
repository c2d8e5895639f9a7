/** The answers of the webhook validator to each line of standard input: [headers, body in hex, secrets, now_ms]. */

import { validate } from "../model/webhooks.mjs";

const lines = (await new Response(/** @type {any} */ (process.stdin)).text()).trim().split("\n");
const answers = lines.map((line) => {
  const [headers, body, secrets, nowMs] = JSON.parse(line);
  const { ok, status, reason, secret_index } = validate(headers, Buffer.from(body, "hex"), secrets, nowMs);
  return [ok, status, reason, secret_index];
});
process.stdout.write(JSON.stringify(answers));
