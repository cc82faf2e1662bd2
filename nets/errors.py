"""What a model or its numbers can get wrong. No torch here, so it is cheap to catch."""


class ModelError(Exception):
    """A model can't be used as asked: names the field or tensor, and what to do."""


class TrainingError(ModelError):
    """Training or measuring can't go on: says at which step or window, and what to do."""


class Stopped(Exception):  # noqa: N818  # the name says what happened
    """Work that was asked to stop did so between two steps; nothing is wrong with it."""

    def __init__(self, where: str, stage: str = "") -> None:
        self.where, self.stage = where, stage
        super().__init__(
            f"{stage}: stopped {where}; the same command goes on from there".lstrip(": ")
        )
