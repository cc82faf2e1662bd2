"""Settings: frozen pydantic models, the shipped YAML, this machine. The lowest floor.

Here: what a person may choose, every check and refusal of it, the environment's
variables, and what this machine has to offer. Not here: what a choice does. It imports no
other room, no torch.
"""
