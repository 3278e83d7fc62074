"""The arguments of `minibert push`."""

from dataclasses import dataclass

from . import argument


@dataclass
class PushArguments:
    """Check a saved model as somebody without the package loads it, and publish it on the Hub."""

    paths: list[str] = argument([], "A saved model's folder, then the repository ([owner/]name); also without --paths.")
    revision: str | None = argument(None, "The branch to push to, made if it is not there; by default main.")
    private: bool = argument(False, "Only you can see the repository.")
    license: str | None = argument(None, "The Hub's name of the weights' licence (apache-2.0, mit, …), for a new card.")
    overwrite_card: bool = argument(False, "Write a new card even over one edited by hand, here or on the Hub.")
    eval_results: list[str] = argument(
        [], "Figures of the card for the Hub's leaderboards: METRIC=OWNER/DATASET:TASK, a task of the set's eval.yaml."
    )
    commit_message: str = argument("Upload a MiniBERT model", "The message of the commit.")
    dry_run: bool = argument(False, "Check everything and show what would be uploaded, but upload nothing.")
