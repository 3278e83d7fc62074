"""Commands that are still made of dataclasses; goes with the last of them."""
