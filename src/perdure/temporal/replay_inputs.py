"""`python -m perdure.temporal.replay_inputs FILE`: what a worker did, done again without a server.

FILE was written by a worker that ran with `PERDURE_RECORD`. Every input is fed to a new core; the
log of it is printed, and a line that came out otherwise than when it was recorded is marked. Ends
with 1 if there was one, with 2 if the file cannot be read.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import click

from perdure.temporal.install import install

__all__ = ["main"]


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--run", default="", help="Show only the run whose id begins with this.")
def main(file: Path, run: str) -> None:
    """Replay the inputs in FILE through the core, and print what comes out."""
    install()
    from perdure.core.input_log import BrokenInputLog, replay
    from perdure.core.trace import describe_input, run_of

    total = differing = 0
    with file.open(encoding="utf-8") as lines:
        try:
            for replayed in replay(lines):
                total += 1
                differing += not replayed.is_same
                if not replayed.is_same or run_of(replayed.given).startswith(run):
                    click.echo(f"-> {describe_input(replayed.given)}")
                    click.echo(_actions(replayed.did, replayed.did_then), nl=False)
        except BrokenInputLog as error:
            click.echo(f"{file}: {error.message}", err=True)
            sys.exit(2)
    click.echo(f"{total} inputs, {differing} with another outcome than recorded")
    sys.exit(1 if differing else 0)


def _actions(did: list[str], did_then: list[str]) -> str:
    if did == did_then:
        return _indented("<-", did)
    return _indented("<- now:     ", did) + _indented("<- recorded:", did_then or ["nothing"])


def _indented(mark: str, lines: Iterable[str]) -> str:
    return "".join(f"   {mark} {line}\n" for line in lines)


if __name__ == "__main__":
    main()
