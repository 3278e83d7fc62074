"""`minibert bench`: speed and memory of MiniBERT against Transformers' own models, side by side on this machine."""
