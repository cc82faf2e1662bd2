"""Settings: frozen pydantic models, the shipped YAML, this machine. The lowest floor."""
