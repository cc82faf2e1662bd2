"""What a user can mend about data, models and outputs."""


class InputError(Exception):
    """Data, a model or an output path can't be used: what, where, and what to do."""
