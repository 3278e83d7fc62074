"""What is held out of a training, and how a model is measured on it."""
