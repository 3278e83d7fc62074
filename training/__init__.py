"""Everything that trains: data → objective → `transformers.Trainer`, and the `minibert` command.

Nothing is imported here, so that `minibert --help` stays free of torch.
"""
