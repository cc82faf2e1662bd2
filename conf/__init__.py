"""Settings: frozen pydantic models, the shipped YAML, what this machine is. The lowest floor."""
