"""The trainers of embedding models and rerankers: their tasks, losses and teachers, and what they
leave in the output folder."""
