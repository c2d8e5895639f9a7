"""`kfm completion`: a script that teaches a shell our words."""

from __future__ import annotations

import click

from kfm.cli.options import log_option

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS), metavar="SHELL")
@log_option
def command(shell: str) -> None:
    """Print a completion script for SHELL: bash, zsh or fish.

    It completes values, too: names of the configuration, the newest ids of the ledger; with --server or
    KFM_SERVER those of the service.

    \b
    bash:  kfm completion bash > ~/.local/share/bash-completion/completions/kfm
    zsh:   kfm completion zsh > "${fpath[1]}/_kfm"
    fish:  kfm completion fish > ~/.config/fish/completions/kfm.fish
    """
    from click.shell_completion import get_completion_class

    from kfm.cli.command_line import kfm
    from kfm.config.loader import COMPLETE_VARIABLE

    kind = get_completion_class(shell)
    assert kind is not None, shell
    # Not `.source()`: for bash that would start a shell to ask for its version.
    script = kind(kfm, {}, "kfm", COMPLETE_VARIABLE)
    click.echo(script.source_template % script.source_vars())
