"""`edge completion`: the script that lets a shell complete commands and options."""

from __future__ import annotations

import click

from edge.cli.exit_codes import misused


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  edge completion bash > ~/.local/share/bash-completion/completions/edge
    zsh:   edge completion zsh > "${fpath[1]}/_edge"
    fish:  edge completion fish > ~/.config/fish/completions/edge.fish
    """
    from click.shell_completion import get_completion_class

    from edge.cli import edge

    script = get_completion_class(shell)
    if script is None:
        raise misused(f"no completion for {shell}")
    click.echo(script(edge, {}, "edge", "_EDGE_COMPLETE").source())
