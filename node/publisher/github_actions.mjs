/** The target for GitHub Actions (artifacts, outputs and the job's summary), at its documented path. */

export { GithubActions, outputValues, outputs, summary } from "../publish/targets/github_actions.mjs";
