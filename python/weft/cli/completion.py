"""Print the script that completes weft's commands in your shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from weft.cli import completing


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that completes weft's commands in your shell.

    \b
    Examples:
      eval "$(weft completion bash)"                  # in ~/.bashrc
      eval "$(weft completion zsh)"                   # in ~/.zshrc
      weft completion fish > ~/.config/fish/completions/weft.fish
    """
    completing.register()
    shell_class = get_completion_class(shell)
    assert shell_class is not None  # click knows the three shells of the argument
    root = ctx.find_root().command
    click.echo(shell_class(root, {}, "weft", completing.VARIABLE).source())
