"""What a person looks at: the report page, and the inspector in `ui.inspector`.

Here: the words, tables, plots and verdicts made of what a heal wrote down. Read-only. Not
here: torch, Prefect, anything that measures or writes to a store.
"""
