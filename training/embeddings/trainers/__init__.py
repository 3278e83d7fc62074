"""The trainers of embedding models and rerankers: their setups, losses and teachers, and what they
leave in the output folder."""
