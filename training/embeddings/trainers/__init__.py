"""The trainers of embedding models and rerankers: their setups, losses and teachers."""
