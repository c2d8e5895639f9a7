/** Idempotency keys, at their documented path: what each is made of, and the key itself. */

export * from "../model/keys.mjs";
