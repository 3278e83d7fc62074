"""What trainings of every kind share: files, loading, checkpoints, callbacks, precision, processes,
printing."""
