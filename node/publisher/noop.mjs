/** The publisher of a dry run and the no-op target, at their documented path. */

export { NoopPublisher } from "../publish/publisher.mjs";
export { Noop } from "../publish/targets/noop.mjs";
