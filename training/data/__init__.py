"""Text to batches: sources, documents, mixtures and streams, packing into rows, masking."""
