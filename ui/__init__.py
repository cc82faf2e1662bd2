"""What a person looks at: the report page. Read-only, no torch, no Prefect."""
