/** The publisher that every pipeline is given, at its documented path. */

export { Publisher, StagingPublisher, hashed, isFetched, staged } from "../publish/publisher.mjs";
