/** The webhook validator, at its documented path. */

export { BODY_BYTES_MAX, validate } from "../model/webhooks.mjs";
