"""What every training does between its steps: logs, warnings, checkpoints, signals."""
