"""What a model or its numbers can get wrong. No torch here, so that a caller can catch cheaply."""


class ModelError(Exception):
    """A model can't be used as asked: names the field or tensor, and what to do."""


class TrainingError(ModelError):
    """Training or measuring can't go on: says at which step or window, and what to do."""
