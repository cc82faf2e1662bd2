"""A command that `torchrun` started several of: one runs, the others help it to train."""

from collections.abc import Callable

from conf.cards import torchrun_place


def among_ranks(command: Callable[[], object]) -> None:
    """Run the command; of torchrun's processes on rank 0 alone (docs/scaling.md)."""
    place = torchrun_place()
    if place is None:
        command()
        return
    from tasks.torchrun_ranks import dismiss_others, serve

    if place.rank > 0:
        serve(place)
        return
    try:
        command()
    finally:
        dismiss_others()
