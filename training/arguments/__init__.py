"""The arguments of every command, as dataclasses. Nothing here imports torch."""
