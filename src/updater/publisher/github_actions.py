"""The publisher for GitHub Actions: artifacts, outputs and the job's summary."""

from __future__ import annotations

from kfm.publish.targets.github_actions import GithubActions

__all__ = ["GithubActions"]
