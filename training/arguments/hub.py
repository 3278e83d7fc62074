"""The arguments of `minibert push`."""

from __future__ import annotations

from dataclasses import dataclass

from .pretraining import argument


@dataclass
class PushArguments:
    """What `minibert push` publishes, and where."""

    paths: list[str] = argument(
        [], "The folder of a saved model, and the repository (owner/name, or a name of your own); also without --paths."
    )
    revision: str | None = argument(
        None, "The branch to push to, made if it is not there: a stage of training each. By default main."
    )
    private: bool = argument(False, "Only you can see the repository.")
    license: str | None = argument(
        None,
        "Licence of the weights as the Hub names it (apache-2.0, mit, cc-by-4.0, …), for a card that is generated.",
    )
    overwrite_card: bool = argument(
        False, "Write a new card even over one that was edited by hand, here or on the Hub."
    )
    commit_message: str = argument("Upload a MiniBERT model", "The message of the commit.")
    dry_run: bool = argument(False, "Check everything and show what would be uploaded, but upload nothing.")
