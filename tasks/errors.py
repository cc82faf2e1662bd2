"""What a user can mend about data, models and outputs, and what workers fail of."""


class InputError(Exception):
    """Data, a model or an output path can't be used: what, where, and what to do.

    `below` are lines of our own under that sentence, a table or a service's last words;
    line breaks of the sentence itself are in names, and are never shown as such.
    """

    def __init__(self, said: str, below: str = "") -> None:
        super().__init__(f"{said}\n{below}" if below else said)
        self.below = below


class RankLost(Exception):  # noqa: N818  # the name says what happened
    """A process that trained a draft with others is gone: which, why, and what to do."""


class RunnerError(Exception):
    """A cluster or one of its workers did not do its part: which, why, and what to do."""
