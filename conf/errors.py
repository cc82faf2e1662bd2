"""What is wrong with a configuration, where, and what to write instead."""


class ConfigError(Exception):
    """A setting, file or override a user can mend; its text names place and cure."""
